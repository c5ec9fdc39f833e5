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

/* By this seed, which is not 0: each stream goes on when it likes, what is
 * asked for is not ready as often as not, and blocks and threads come in any
 * order. Streams take it when they are created. */
void fl_emu_set_seed(unsigned long long seed);

/* The n-th allocation from now on fails, and so does one more try of it; 0:
 * none. fl_emu_failed(): has it? */
void fl_emu_fail_at(int n);
bool fl_emu_failed(void);

/* Does cuBLASLt's relu give NaN for NaN? Real ones have done either: all of its
 * algorithms, or all but the first. */
void fl_emu_set_relu_keeps_nan(bool keeps);
void fl_emu_set_relu_by_algorithm(bool by);

/* All products of cuBLASLt add in one order; else alignments say which. */
void fl_emu_set_one_order(bool one);

/* What cuBLASLt does not have, or refuses. */
enum {
    FL_EMU_NO_HANDLE = 1,   /* itself */
    FL_EMU_NO_PRODUCT = 2,  /* an algorithm for any product */
    FL_EMU_NO_EPILOGUE = 4, /* one with a bias */
    FL_EMU_NO_FIRST = 8,    /* the one that it guessed first */
    FL_EMU_NO_RUN = 16      /* to run what it has guessed */
};
void fl_emu_refuse_products(unsigned which);

/* Calls that would have waited for a busy device, and had no deadline. */
long fl_emu_hangs(void);

/* Bytes that the devices have, which memory that was freed counts in until it
 * is given back: cudaMallocAsync() takes it again, cudaMalloc() and graphs
 * cannot. 0: any. */
void fl_emu_set_memory(size_t bytes);

/* Does the device have memory pools? */
void fl_emu_set_pools(bool has);

/* After that many kernels the context is lost: each call fails. -1: never. */
void fl_emu_lose_after(int kernels);

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
long fl_emu_nodes(void);    /* of graphs that were launched so far */
long fl_emu_switches(void); /* of fibers */
long fl_emu_queued(void);   /* kernels, products, copies, fills and graphs that
                               were queued so far; a graph counts once */

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
