/* trace.h - a trace: when each step ran, by thread, and when asynchronous work
 * of ranks and GPUs was under way. With FLEET_TRACE=FOLDER each handle writes
 * its trace to a file when it is destroyed, as Chrome trace events, which
 * chrome://tracing and Perfetto show. Times are the monotonic clock's, which
 * all processes of a host share.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef struct fl_trace fl_trace;

/* How many events are kept: the first ones. */
enum { FL_TRACE_MOST = 1 << 17 };

/* NULL: FLEET_TRACE is not set, or memory is out; all else then does
 * nothing. */
fl_trace *fl_trace_open(void);

/* name lives as long as the trace. From any thread. */
void fl_trace_step(fl_trace *t, const char *name, int thread, int64_t begin_ns,
                   int64_t end_ns);

/* Work that is under way beside the steps, from its begin to its end; `number`
 * tells works of one name apart. */
void fl_trace_begin(fl_trace *t, const char *name, int number, int64_t bytes);
void fl_trace_end(fl_trace *t, const char *name, int number);

/* Write FOLDER/worker-INDEX.PID.json, or server-. */
fleet_status fl_trace_write(fl_trace *t, bool is_server, int index);
void fl_trace_close(fl_trace *t);
