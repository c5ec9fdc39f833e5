/* stop.c - how often this process was asked to stop training. */
#include "fleet/job/stop.h"

#include <fleet/train.h>

#include <stdatomic.h>

/* Signal handlers add to it: an atomic without a lock. */
static atomic_uint wishes;

void fleet_train_stop(void)
{
    atomic_fetch_add_explicit(&wishes, 1, memory_order_relaxed);
}

unsigned fl_stop_count(void)
{
    return atomic_load_explicit(&wishes, memory_order_relaxed);
}
