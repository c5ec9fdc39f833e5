/* block.h - the block that runs: its threads, what they wait for. Inside. */
#pragma once

#include "cuda_runtime.h"
#include "fiber.h"

enum { FL_EMU_MOST_THREADS = 1024, FL_EMU_MOST_SHARED = 48 * 1024 };

enum fl_emu_state {
    FL_EMU_NEW,
    FL_EMU_READY,
    FL_EMU_AT_BARRIER,
    FL_EMU_AT_MEETING,
    FL_EMU_DONE
};

/* A CUDA thread. */
struct fl_emu_strand {
    fl_emu_state state;
    fl_fiber *fiber;
    /* of the meeting it waits for */
    fl_emu_meeting what;
    unsigned mask;
    uint64_t value, got;
    int from;
};

struct fl_emu_block {
    const fl_emu_launch *launch;
    uint3 index;
    int n, begun, done, at_barrier;
    fl_emu_strand lane[FL_EMU_MOST_THREADS];
    unsigned met[FL_EMU_MOST_THREADS / warpSize]; /* lanes at a meeting */
    int ready[FL_EMU_MOST_THREADS]; /* a ring: those that may go on */
    unsigned first_ready, n_ready;
    fl_fiber main;
    fl_fiber *running;
    int current;                /* the thread that runs; -1: none */
    bool failed, backward;      /* backward: threads begin from the last */
    int first_warp;             /* or from there */
    long switches;              /* of the launch */
    char begins, ends, barrier; /* what ThreadSanitizer orders by */
    alignas(64) unsigned char shared[FL_EMU_MOST_SHARED];
};

/* This thread's, NULL outside of a launch. */
extern FL_EMU_THREAD fl_emu_block *fl_emu_now;

void fl_emu_counted(long launches, long switches);
