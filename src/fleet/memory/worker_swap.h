/* worker_swap.h - rounds of messages between the workers of a job: by sockets
 * of their own beside servers, by the communicator of ranks. */
#pragma once

#include "data/memory_exchange.h"
#include "fleet/job/handle.h"

typedef struct fl_worker_swap {
    fl_memory_swap rounds;
    struct fl_mesh *mesh; /* NULL: of ranks */
    fleet *f;
    char *out, *in; /* of ranks: messages side by side */
    size_t out_room, in_room;
    int64_t *size; /* of ranks: what was sent, what has come, by rank */
} fl_worker_swap;

/* Of all workers, which make this call together. */
fleet_status fl_worker_swap_open(fl_worker_swap *s, fleet *f);
void fl_worker_swap_close(fl_worker_swap *s); /* also after a failure */
