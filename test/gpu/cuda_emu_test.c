/* cuda_emu_test.c - the emulated device: threads, barriers, shuffles, votes and
 * atomics do what CUDA's do, and what a kernel does wrong is told by name. */
#define SUITE cuda_emu
#include "test.h"

#include <stdlib.h>

#include "cuda-emu/control.h"
#include "cuda-emu/samples.h"

static void fill(float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)(i + 1);
}

TEST(a_block_shares_memory_and_meets_at_barriers)
{
    float x[SAMPLE_THREADS], out[SAMPLE_THREADS];

    fill(x, SAMPLE_THREADS);
    for (int i = 0; i < 12; i++) {
        fl_emu_set_reverse(i == 1);
        fl_emu_set_seed(i > 1 ? (unsigned long long)i : 0);
        CHECK_TEXT(sample_tree_sum(out, x, 1), "no error");
        for (int j = 0; j < SAMPLE_THREADS; j++)
            CHECK(out[j] == 64 * 65 / 2);
    }
}

/* ThreadSanitizer is right about this one. */
#ifndef FL_OWN_RUNNER
TEST(a_barrier_that_is_missing_shows)
{
    float x[SAMPLE_THREADS], out[SAMPLE_THREADS];

    fill(x, SAMPLE_THREADS);
    CHECK_TEXT(sample_tree_sum(out, x, 0), "no error");
    CHECK(out[0] != 64 * 65 / 2);
}
#endif

TEST(lanes_exchange_values_and_vote)
{
    int out[SAMPLE_THREADS * 8];

    CHECK_TEXT(sample_shuffles(out), "no error");
    for (int i = 0; i < SAMPLE_THREADS; i++) {
        int lane = i % 32, warp = i - lane, *at = out + i * 8;

        CHECK_INT(at[0], warp + 5);
        CHECK_INT(at[1], lane + 3 < 32 ? i + 3 : i);
        CHECK_INT(at[2], lane % 8 ? i - 1 : i);
        CHECK_INT(at[3], i ^ 1);
        CHECK_INT((unsigned)at[4], 0x49249249u);
        CHECK_INT(at[5], lane < 16 ? 1 : 2);
        CHECK_INT((unsigned)at[6], 0xfu << lane / 4 * 4);
        CHECK_INT(at[7], 31 * 32 / 2);
    }
}

TEST(threads_and_blocks_have_their_indices)
{
    for (int seed = 0; seed < 8; seed++) {
        int out[6 * 16] = {0};

        fl_emu_set_seed((unsigned long long)seed);
        CHECK_TEXT(sample_indices(out), "no error");
        for (int i = 0; i < 6 * 16; i++)
            CHECK_INT(out[i], i / 16 * 100 + i % 16);
    }
}

TEST(atomics_give_what_was_there)
{
    int out[5] = {0};

    CHECK_TEXT(sample_atomics(out), "no error");
    CHECK_INT(out[0], 99 * 100 / 2);
    CHECK_INT(out[1], 99);
    CHECK_INT(out[2], -99);
    CHECK_INT(out[3], 7);
    CHECK_INT(out[4], 1);
}

TEST(a_kernel_that_never_waits_is_a_plain_loop)
{
    enum { N = 100000 };
    float *x = calloc(N, sizeof *x);
    long before = fl_emu_switches();

    CHECK_TEXT(sample_plain_loop(x, N), "no error");
    for (int i = 0; i < N; i++)
        CHECK(x[i] == 1);
    CHECK_INT(fl_emu_switches() - before, (N + 255) / 256);
    free(x);
}

TEST(what_a_kernel_does_wrong_is_told_by_name)
{
    CHECK_CONTAINS(sample_half_at_barrier(),
                   "half_at_barrier, block 0,0,0: __syncthreads() was reached "
                   "by 10 of 64 threads");
    CHECK_CONTAINS(sample_mask_too_wide(),
                   "shuffle_with, block 0,0,0: the mask 0xffffffff names lane "
                   "20, which the block does not have");
    CHECK_CONTAINS(sample_not_in_mask(), "is not in its own mask 0xff");
    CHECK_CONTAINS(sample_reads_outside_mask(),
                   "a shuffle reads lane 9, which is not in the mask 0xff");
    CHECK_CONTAINS(sample_lanes_apart(),
                   "lanes of a mask that do not come are waited for by 16 "
                   "threads; 16 have ended");
}

TEST(a_launch_that_cannot_be_is_told_by_name)
{
    CHECK_CONTAINS(sample_threads(1025), "half_at_barrier: 1025 threads");
    CHECK_CONTAINS(sample_threads(0), "half_at_barrier: 0 threads");
    CHECK_CONTAINS(sample_shared(1 << 20), "1048576 bytes of shared memory");
    CHECK_CONTAINS(sample_no_blocks(), "a grid of 0 x 1 x 1 blocks");
    CHECK_TEXT(sample_threads(1024), "no error");
}

TEST(after_a_failure_the_next_kernel_runs)
{
    for (int i = 0; i < 50; i++) {
        int out[SAMPLE_THREADS * 8];

        sample_half_at_barrier();
        CHECK_TEXT(sample_shuffles(out), "no error");
        CHECK_INT(out[7], 31 * 32 / 2);
    }
}
