/* ledger.c - accounts as atomic numbers: each charge has a reference, because
 * ZeroMQ may keep a packet for longer than its sender lives. */
#include "net/ledger.h"

#include <stdatomic.h>

#include "base/memory.h"

struct fl_ledger {
    atomic_int refs; /* the handle's, and one for each charge */
    atomic_size_t total;
    atomic_size_t held[];
};

fleet_status fl_ledger_create(fl_ledger **ledger, int n)
{
    FL_TRY(
        FL_NEW(ledger, sizeof **ledger + (size_t)n * sizeof *(*ledger)->held));
    atomic_init(&(*ledger)->refs, 1);
    atomic_init(&(*ledger)->total, 0);
    for (int i = 0; i < n; i++)
        atomic_init(&(*ledger)->held[i], 0);
    return FLEET_OK;
}

void fl_ledger_drop(fl_ledger *ledger)
{
    if (ledger &&
        atomic_fetch_sub_explicit(&ledger->refs, 1, memory_order_acq_rel) == 1)
        fl_free(ledger);
}

void fl_ledger_charge(fl_ledger *ledger, int account, size_t bytes)
{
    atomic_fetch_add_explicit(&ledger->refs, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&ledger->total, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&ledger->held[account], bytes,
                              memory_order_relaxed);
}

void fl_ledger_credit(fl_ledger *ledger, int account, size_t bytes)
{
    atomic_fetch_sub_explicit(&ledger->total, bytes, memory_order_relaxed);
    atomic_fetch_sub_explicit(&ledger->held[account], bytes,
                              memory_order_relaxed);
    fl_ledger_drop(ledger);
}

size_t fl_ledger_held(const fl_ledger *ledger, int account)
{
    return atomic_load_explicit(&ledger->held[account], memory_order_relaxed);
}

size_t fl_ledger_total(const fl_ledger *ledger)
{
    return atomic_load_explicit(&ledger->total, memory_order_relaxed);
}
