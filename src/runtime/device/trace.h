/* trace.h - what a process does when: steps, by thread, and what is under way
 * between ranks. With FLEET_TRACE=FOLDER each handle writes a file of it as it
 * ends, in the format of Chrome's trace events, which chrome://tracing and
 * Perfetto show. Times are the monotonic clock's: those of one host's processes
 * go together.
 */
#ifndef FL_RUNTIME_DEVICE_TRACE_H
#define FL_RUNTIME_DEVICE_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef struct fl_trace fl_trace;

/* Events that are kept: the first ones. */
enum { FL_TRACE_MOST = 1 << 17 };

/* NULL: nobody asks for one, or there is no memory; all else then does nothing.
 */
fl_trace *fl_trace_open(void);

/* name lives as long as the trace. From any thread. */
void fl_trace_step(fl_trace *t, const char *name, int thread, int64_t begin_ns,
                   int64_t end_ns);

/* From its begin to its end, beside the steps; of an iteration, by number. */
void fl_trace_begin(fl_trace *t, const char *name, int number, int64_t bytes);
void fl_trace_end(fl_trace *t, const char *name, int number);

/* Write FOLDER/worker-INDEX.PID.json, or server-. */
fleet_status fl_trace_write(fl_trace *t, bool is_server, int index);
void fl_trace_close(fl_trace *t);

#endif
