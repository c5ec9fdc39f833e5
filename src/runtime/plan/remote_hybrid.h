/* remote_hybrid.h - one remote made of two: servers, and tables that are
 * sharded over the ranks. Each table says which of the two it is for
 * (fl_rows.remote: the servers). Dense parameters that a plan pushes are for
 * the servers; ranks sum all other gradients among themselves.
 *
 * Updates are counted, passes ended and numbers added up by the servers. A
 * push goes to both, even with nothing in it: all ranks make the same calls.
 */
#pragma once

#include "runtime/plan/remote.h"

typedef struct fl_remote_hybrid fl_remote_hybrid;

/* Of two remotes that live longer. */
fleet_status fl_remote_hybrid_create(fl_remote_hybrid **hybrid,
                                     fl_remote *servers, fl_remote *ranks);
void fl_remote_hybrid_destroy(fl_remote_hybrid *h); /* NULL is fine */
fl_remote *fl_remote_hybrid_remote(fl_remote_hybrid *h);
