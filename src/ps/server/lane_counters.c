/* lane_counters.c - a lane's numbers taken, found by name, and printed. */
#include "ps/server/lane_counters.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "ps/server/lane_internal.h"

fl_lane_counts fl_lane_counted(const fl_ps_lane *l)
{
    fl_lane_counts n = {
#define FL_LANE_COUNTER(field, name)                                           \
    .field = atomic_load_explicit(&l->counters.field, memory_order_relaxed),
#include "ps/server/lane_counters.def"
#undef FL_LANE_COUNTER
    };

    n.answer_bytes = fl_ledger_total(l->ledger);
    return n;
}

void fl_lane_note_socket(fl_ps_lane *l, uint64_t refused, uint64_t away_us)
{
    fl_lane_counters *c = &l->counters;

    atomic_store_explicit(&c->refused, refused, memory_order_relaxed);
    if (away_us > atomic_load_explicit(&c->away, memory_order_relaxed))
        atomic_store_explicit(&c->away, away_us, memory_order_relaxed);
}

bool fl_lane_counts_find(const fl_lane_counts *counts, const char *name,
                         uint64_t *value)
{
    static const struct {
        const char *name;
        size_t at;
    } list[] = {
#define FL_LANE_COUNTER(field, name) {name, offsetof(fl_lane_counts, field)},
#include "ps/server/lane_counters.def"
#undef FL_LANE_COUNTER
    };

    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (strcmp(list[i].name, name) == 0) {
            memcpy(value, (const char *)counts + list[i].at, sizeof *value);
            return true;
        }
    return false;
}

void fl_lane_counts_add(fl_lane_counts *all, const fl_lane_counts *one)
{
    uint64_t away = all->away > one->away ? all->away : one->away;

#define FL_LANE_COUNTER(field, name) all->field += one->field;
#include "ps/server/lane_counters.def"
#undef FL_LANE_COUNTER
    all->away = away;
}

/* --- the log -------------------------------------------------------------- */

void fl_lane_counts_log_strays(const fl_lane_counts *counts, fl_log *log,
                               int server, int lane, uint64_t lost)
{
    uint64_t bad = counts->bad + lost;

    if (bad + counts->strays > 0)
        FL_WARN(log,
                "server %d, lane %d: %" PRIu64 " packets were no messages, "
                "%" PRIu64 " of no worker of this job",
                server, lane, bad, counts->strays);
}

void fl_lane_counts_log_refused(const fl_lane_counts *counts, fl_log *log,
                                int server, int lane)
{
    if (counts->refused + counts->foreign > 0)
        FL_WARN(log,
                "server %d, lane %d: %" PRIu64 " connections had no key of "
                "this job, %" PRIu64 " messages were of another worker than "
                "their key",
                server, lane, counts->refused, counts->foreign);
}

/* Where it is bounded: the slowest worker's pulls have 0. */
static void log_staleness(const fl_lane_counts *all, fl_log *log, int server)
{
    FL_INFO(log,
            "server %d: pulls of staleness 0: %" PRIu64 ", 1: %" PRIu64
            ", 2: %" PRIu64 ", 3 to 4: %" PRIu64 ", 5 to 8: %" PRIu64
            ", 9 to 16: %" PRIu64 ", 17 to 32: %" PRIu64 ", 33 to 64: %" PRIu64
            ", more: %" PRIu64 "; %" PRIu64 " pulls waited for slower workers",
            server, all->stale_0, all->stale_1, all->stale_2, all->stale_3_to_4,
            all->stale_5_to_8, all->stale_9_to_16, all->stale_17_to_32,
            all->stale_33_to_64, all->stale_over_64, all->held);
}

void fl_lane_counts_log(const fl_lane_counts *all, fl_log *log, int server)
{
    FL_INFO(log,
            "server %d: steps %" PRIu64 ", updates %" PRIu64
            "; messages that came again %" PRIu64 ", too early %" PRIu64
            "; away from its sockets for %.1f ms at most",
            server, all->steps, all->updates, all->duplicates, all->gaps,
            (double)all->away / 1000);
    if (all->stale_0 > 0)
        log_staleness(all, log, server);
}
