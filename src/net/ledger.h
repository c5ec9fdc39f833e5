/* ledger.h - bytes of packets that peers have been sent and have not read: what
 * is charged to a peer's account weighs on it until the packet is released,
 * which ZeroMQ's threads do when the packet has left the process.
 *
 * Threads: any, for all of it.
 */
#pragma once

#include <stddef.h>

#include "base/error.h"

typedef struct fl_ledger fl_ledger;

/* n accounts, by number from 0. */
fleet_status fl_ledger_create(fl_ledger **ledger, int n);

/* It lives on until the last byte is credited. NULL is fine. */
void fl_ledger_drop(fl_ledger *ledger);

void fl_ledger_charge(fl_ledger *ledger, int account, size_t bytes);
void fl_ledger_credit(fl_ledger *ledger, int account, size_t bytes);

/* What weighs on an account now, on all of them. */
size_t fl_ledger_held(const fl_ledger *ledger, int account);
size_t fl_ledger_total(const fl_ledger *ledger);
