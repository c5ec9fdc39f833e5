/* inside.h - what the files of the emulated device share. */
#pragma once

#include "cuda_runtime.h"

/* What a test has asked for, and counts. */
struct fl_emu_control {
    int devices;
    bool late;
    unsigned long long seed; /* 0: nothing is random */
    bool reverse = false, busy = false;
    int fail_at = 0, major = 9;
    bool failed = false, pools = true;
    std::size_t most = 0, cached = 0; /* bytes */
    int lose_after = -1;
    long launches = 0, switches = 0, queued = 0, waiting = 0, hangs = 0;
    long nodes = 0;
    unsigned long long rolled = seed;
};
extern fl_emu_control fl_emu_is;

static const std::size_t FL_EMU_TOTAL = (std::size_t)1 << 34;

extern thread_local int fl_emu_device; /* the thread's */
cudaError_t fl_emu_need_devices();

/* Has the context been lost? The error of each call then. */
bool fl_emu_is_lost();
cudaError_t fl_emu_lost();

/* What lies on the device is its own, also when its program has given it up: it
 * is known until it is destroyed. */
void fl_emu_keep(const void *object);
void fl_emu_forget(const void *object);

/* One of n, by the seed. */
unsigned fl_emu_roll(unsigned n);

/* Do it in the stream's turn; it counts for nothing. */
void fl_emu_enqueue(cudaStream_t s, std::function<void()> work);

/* Do all that is on it. */
cudaError_t fl_emu_do_all(cudaStream_t s);
