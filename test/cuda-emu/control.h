/* control.h - what a test may ask of the emulated device. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Also those of an emulated device that is a plug-in of a test's. */
#pragma GCC visibility push(default)

/* Devices that there are; 0: a driver without a device, -1: no driver. */
void fl_emu_set_devices(int n);

/* Of the devices' compute capability. */
void fl_emu_set_major(int major);

/* Threads of a block start, and go on, from the last one, and the last that
 * could go on goes on first: a kernel whose result changes lacks a barrier. */
void fl_emu_set_reverse(bool reverse);

/* Nothing that was queued is ever done: for deadlines. */
void fl_emu_set_busy(bool busy);

/* What is queued is done only when somebody waits for it, or another stream
 * does: too late for who has not waited. Copies from memory that is not pinned
 * read it at once, as real ones do. */
void fl_emu_set_late(bool late);

/* The n-th allocation from now on fails; 0: none. */
void fl_emu_fail_at(int n);

/* Does cuBLASLt's relu give NaN for NaN? Real ones have done either. */
void fl_emu_set_relu_keeps_nan(bool keeps);

size_t fl_emu_live_bytes(void); /* device and pinned memory that is not freed */
bool fl_emu_has(const void *p, size_t bytes); /* in one of its allocations */

/* Work of others on a stream, NCCL's: what is queued behind it begins when it
 * has ended, and an event has happened then. It may itself begin when
 * fl_emu_stream_reach(), with what begin gave, is true: that does what was
 * queued before it, as far as that can be. From any thread. */
long fl_emu_stream_begin(void *stream);
bool fl_emu_stream_reach(void *stream, long after);
void fl_emu_stream_end(void *stream);

long fl_emu_waiting(void);  /* what is queued on all streams, and not done */
long fl_emu_launches(void); /* kernels started so far */
long fl_emu_switches(void); /* of fibers */
long fl_emu_queued(void);   /* kernels, products, copies, fills and graphs that
                               were queued so far; a graph counts once */

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
