/* nccl_end.h - how NCCL's communicator ends: each way has a deadline. */
#pragma once

#include "collective/nccl/nccl_internal.h"

enum { FL_NCCL_LEAVE_MS = 2000 };

/* What NCCL has in progress ends at once. No communicator is fine. */
void fl_nccl_abort(fl_nccl *n);

/* The same in a call. What waits on the queue behind NCCL's part of it goes on
 * once that is aborted, and writes to memory that is the caller's again when
 * the call returns: it comes first, if it does soon. */
void fl_nccl_abort_call(fl_nccl *n);

/* Other ranks may still read from this GPU's memory what it has sent: NCCL ends
 * in good order, if it does soon. */
void fl_nccl_leave(fl_nccl *n);
