/* block.cpp - runs the blocks of a launch. Compiled without ThreadSanitizer's
 * instrumentation: what is kept about the threads is not theirs. */
#include "block.h"

#include <cstdio>
#include <cstdlib>

#include "inside.h"

FL_EMU_THREAD uint3 threadIdx, blockIdx, blockDim, gridDim;
FL_EMU_THREAD fl_emu_block *fl_emu_now;

/* Fibers that stay from launch to launch; idle ones first. */
struct fiber_pool {
    fl_fiber *fiber[FL_EMU_MOST_THREADS];
    int n, n_used;
    ~fiber_pool()
    {
        for (int i = 0; i < n; i++) {
            fl_fiber_destroy(fiber[i]);
            std::free(fiber[i]);
        }
    }
};
static thread_local fiber_pool pool;

static void fail(const char *format, const char *what, int a, int b)
{
    fl_emu_block *block = fl_emu_now;
    char text[200];

    std::snprintf(text, sizeof text, format, what, a, b);
    fl_emu_error(cudaErrorLaunchFailure, "%s, block %u,%u,%u: %s",
                 block->launch->kernel, block->index.x, block->index.y,
                 block->index.z, text);
    block->failed = true;
}

/* --- threads of the block ------------------------------------------------ */

static void enter(fl_emu_block *b, int lane)
{
    const dim3 &d = b->launch->block;
    unsigned i = (unsigned)lane;

    b->current = lane;
    if (d.y * d.z == 1) /* the usual, without divisions */
        threadIdx = {i, 0, 0};
    else
        threadIdx = {i % d.x, i / d.x % d.y, i / (d.x * d.y)};
}

static void go_on(fl_emu_block *b);

/* The thread that begins next: from the first, from the last, or, by a seed,
 * warp by warp from one of them on. */
static int lane_in_turn(const fl_emu_block *b)
{
    int i = b->begun, warps = b->n / warpSize;

    if (b->backward)
        i = b->n - 1 - i;
    return b->n % warpSize == 0
               ? (i / warpSize + b->first_warp) % warps * warpSize +
                     i % warpSize
               : i;
}

/* What every fiber does: take the next thread that has not begun, run it. */
static void fiber_body()
{
    fl_fiber_entered();
    for (;;) {
        fl_emu_block *b = fl_emu_now;

        fl_fiber_acquire(&b->begins);
        while (b->begun < b->n && !b->failed) {
            int lane = lane_in_turn(b);

            b->begun++;
            b->lane[lane].state = FL_EMU_READY;
            b->lane[lane].fiber = b->running;
            enter(b, lane);
            b->launch->thread(b->launch->call);
            lane = b->current; /* the fiber's own: nobody else changes it */
            b->lane[lane].state = FL_EMU_DONE;
            b->done++;
        }
        fl_fiber_release(&b->ends);
        go_on(b);
    }
}

/* Behind those that are ready, or before them: then a warp goes on as far as it
 * can while others have not moved. */
static void make_ready(fl_emu_block *b, int lane)
{
    unsigned at = b->first_ready + b->n_ready;

    if (fl_emu_is.seed ? fl_emu_roll(2) : b->backward)
        at = b->first_ready =
            (b->first_ready + FL_EMU_MOST_THREADS - 1) % FL_EMU_MOST_THREADS;
    b->lane[lane].state = FL_EMU_READY;
    b->ready[at % FL_EMU_MOST_THREADS] = lane;
    b->n_ready++;
}

/* The current thread waits until it is made ready; what the others did before
 * they came there has happened then. */
static void wait(fl_emu_block *b, void *order)
{
    int self = b->current;

    fl_fiber_release(order);
    fl_fiber_release(&b->ends); /* in case it never goes on */
    go_on(b);
    fl_fiber_acquire(order);
    enter(b, self);
}

void __syncthreads()
{
    fl_emu_block *b = fl_emu_now;

    b->lane[b->current].state = FL_EMU_AT_BARRIER;
    b->at_barrier++;
    if (b->at_barrier == b->n) {
        b->at_barrier = 0;
        for (int i = 0; i < b->n; i++)
            make_ready(b, i);
    }
    wait(b, &b->barrier);
}

/* --- lanes of a warp ------------------------------------------------------ */

int fl_emu_lane()
{
    return fl_emu_now->current % warpSize;
}

/* Has every lane of the mask come to this very meeting? */
static bool all_met(const fl_emu_block *b, const fl_emu_strand *self, int first)
{
    const fl_emu_strand *warp = b->lane + first;

    if (self->mask & ~b->met[first / warpSize])
        return false;
    for (int i = 0; i < warpSize; i++)
        if (self->mask >> i & 1 &&
            (warp[i].what != self->what || warp[i].mask != self->mask))
            return false;
    return true;
}

/* Lanes that say yes in a ballot, or have the same value. */
static uint64_t lanes_like(const fl_emu_strand *warp, const fl_emu_strand *self)
{
    uint64_t lanes = 0;

    for (int i = 0; i < warpSize; i++)
        if (self->mask >> i & 1 &&
            (self->what == FL_EMU_BALLOT ? warp[i].value != 0
                                         : warp[i].value == self->value))
            lanes |= (uint64_t)1 << i;
    return lanes;
}

/* All have met: each gets its answer and goes on. */
static void end_meeting(fl_emu_block *b, const fl_emu_strand *self, int first)
{
    fl_emu_strand *warp = b->lane + first;
    uint64_t votes = self->what == FL_EMU_BALLOT ? lanes_like(warp, self) : 0;

    b->met[first / warpSize] &= ~self->mask;
    for (int i = 0; i < warpSize; i++) {
        if (!(self->mask >> i & 1))
            continue;
        if (self->what == FL_EMU_SHUFFLE)
            warp[i].got = warp[warp[i].from].value;
        else if (self->what == FL_EMU_BALLOT)
            warp[i].got = votes;
        else if (self->what == FL_EMU_MATCH)
            warp[i].got = lanes_like(warp, &warp[i]);
        make_ready(b, first + i);
    }
}

/* Is the mask one that this lane may meet in? */
static bool check_mask(const fl_emu_block *b, const fl_emu_strand *warp,
                       const fl_emu_strand *self)
{
    int at = (int)(self - warp), first = b->current - at;

    if (!(self->mask >> at & 1))
        fail("%s lane %d is not in its own mask 0x%x", "a warp's", at,
             (int)self->mask);
    for (int i = b->n - first; i < warpSize && !b->failed; i++)
        if (self->mask >> i & 1)
            fail("%s 0x%x names lane %d, which the block does not have",
                 "the mask", (int)self->mask, i);
    if (self->what == FL_EMU_SHUFFLE && !b->failed &&
        (self->from < 0 || self->from >= warpSize ||
         !(self->mask >> self->from & 1)))
        fail("%s lane %d, which is not in the mask 0x%x", "a shuffle reads",
             self->from, (int)self->mask);
    return !b->failed;
}

uint64_t fl_emu_meet(fl_emu_meeting what, unsigned mask, uint64_t value,
                     int from)
{
    fl_emu_block *b = fl_emu_now;
    int first = b->current / warpSize * warpSize;
    fl_emu_strand *warp = b->lane + first, *self = b->lane + b->current;

    self->state = FL_EMU_AT_MEETING;
    self->what = what;
    self->mask = mask;
    self->value = value;
    self->from = from;
    b->met[first / warpSize] |= 1u << b->current % warpSize;
    if (check_mask(b, warp, self) && all_met(b, self, first))
        end_meeting(b, self, first);
    wait(b, warp);
    return self->got;
}

/* --- the scheduler -------------------------------------------------------- */

static fl_fiber *idle_fiber()
{
    if (pool.n_used == pool.n) {
        fl_fiber *f = static_cast<fl_fiber *>(std::malloc(sizeof *f));

        if (!f || !fl_fiber_create(f, fiber_body)) {
            std::free(f);
            return nullptr;
        }
        pool.fiber[pool.n++] = f;
    }
    return pool.fiber[pool.n_used++];
}

/* Nobody can go on. */
static void report_stuck()
{
    fl_emu_block *b = fl_emu_now;
    int waiting = 0;

    for (int i = 0; i < b->n; i++)
        waiting += b->lane[i].state == FL_EMU_AT_MEETING;
    if (b->at_barrier > 0)
        fail("%s was reached by %d of %d threads", "__syncthreads()",
             b->at_barrier, b->n);
    else
        fail("%s are waited for by %d threads; %d have ended",
             "lanes of a mask that do not come", waiting, b->done);
}

/* Who runs next: a thread that may go on, or a fiber for those that have not
 * begun; at the end of the block the stack that runs it. */
static fl_fiber *next_fiber(fl_emu_block *b)
{
    fl_fiber *f;

    if (b->failed || b->done == b->n)
        return &b->main;
    b->switches++;
    b->current = -1;
    if (b->n_ready > 0) {
        b->current = b->ready[b->first_ready];
        b->first_ready = (b->first_ready + 1) % FL_EMU_MOST_THREADS;
        b->n_ready--;
        return b->lane[b->current].fiber;
    }
    if (b->begun == b->n) {
        report_stuck();
        return &b->main;
    }
    f = idle_fiber();
    if (!f)
        fail("%s%d%d", "no memory for fibers: ", 0, 0);
    return f ? f : &b->main;
}

/* From stack to stack, without one that every switch goes through. */
static void go_on(fl_emu_block *b)
{
    fl_fiber *self = b->running;

    b->running = next_fiber(b);
    if (b->running == &b->main) /* which reads what has gone wrong */
        fl_fiber_release(&b->ends);
    if (b->running != self)
        fl_fiber_switch(self, b->running);
}

/* Threads that wait for ever are given up. */
static void abandon()
{
    for (int i = 0; i < pool.n_used; i++)
        fl_fiber_reset(pool.fiber[i], fiber_body);
}

static bool run_block(fl_emu_block *b)
{
    b->begun = b->done = b->at_barrier = b->n_ready = b->first_ready = 0;
    b->backward = fl_emu_is.seed ? fl_emu_roll(2) != 0 : fl_emu_is.reverse;
    b->first_warp = fl_emu_is.seed ? (int)fl_emu_roll(64) : 0;
    for (unsigned &met : b->met)
        met = 0;
    for (int i = 0; i < b->n; i++)
        b->lane[i].state = FL_EMU_NEW;
    pool.n_used = 0;
    fl_fiber_release(&b->begins);
    b->running = &b->main;
    go_on(b);
    fl_fiber_acquire(&b->ends);
    if (b->failed)
        abandon();
    return !b->failed;
}

static bool check_launch(const fl_emu_launch *l)
{
    uint64_t threads = (uint64_t)l->block.x * l->block.y * l->block.z;
    uint64_t blocks = (uint64_t)l->grid.x * l->grid.y * l->grid.z;

    if (threads < 1 || threads > FL_EMU_MOST_THREADS || l->block.z > 64)
        fl_emu_error(cudaErrorInvalidConfiguration,
                     "%s: %llu threads in a block; expected 1 to %d", l->kernel,
                     (unsigned long long)threads, FL_EMU_MOST_THREADS);
    else if (blocks < 1 || l->grid.x > 0x7fffffffu || l->grid.y > 65535 ||
             l->grid.z > 65535)
        fl_emu_error(cudaErrorInvalidConfiguration,
                     "%s: a grid of %u x %u x %u blocks cannot be", l->kernel,
                     l->grid.x, l->grid.y, l->grid.z);
    else if (l->shared > FL_EMU_MOST_SHARED)
        fl_emu_error(cudaErrorInvalidValue,
                     "%s: %zu bytes of shared memory; expected at most %d",
                     l->kernel, l->shared, FL_EMU_MOST_SHARED);
    else
        return true;
    return false;
}

/* By a seed blocks come in steps of a prime that is not in their number. */
static uint64_t step_for(uint64_t n)
{
    static const unsigned prime[] = {7919, 104729, 611953, 1299709};
    uint64_t step = prime[fl_emu_roll(4)];

    return n % step == 0 ? 1 : step;
}

static void run_grid(fl_emu_block *b, const dim3 &g)
{
    uint64_t n = (uint64_t)g.x * g.y * g.z, first = 0, step = 1;

    if (fl_emu_is.seed) {
        first = fl_emu_roll((unsigned)(n < UINT32_MAX ? n : UINT32_MAX));
        step = step_for(n);
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = (first + i * step) % n;

        b->index = blockIdx = {(unsigned)(at % g.x), (unsigned)(at / g.x % g.y),
                               (unsigned)(at / g.x / g.y)};
        if (!run_block(b))
            return;
    }
}

/* This thread's block: too large for a stack, kept from launch to launch. */
static fl_emu_block *the_block()
{
    static thread_local struct holder {
        fl_emu_block *block;
        ~holder()
        {
            std::free(block);
        }
    } kept;
    enum { LINE = 64 };

    if (!kept.block)
        kept.block = static_cast<fl_emu_block *>(std::aligned_alloc(
            LINE, (sizeof *kept.block + LINE - 1) / LINE * LINE));
    return kept.block;
}

void fl_emu_run(const fl_emu_launch *l)
{
    fl_emu_block *b = the_block();

    if (!check_launch(l))
        return;
    if (!b) {
        fl_emu_error(cudaErrorMemoryAllocation, "%s: no memory", l->kernel);
        return;
    }
    b->launch = l;
    b->n = (int)(l->block.x * l->block.y * l->block.z);
    b->failed = false;
    __builtin_memset(b->shared, 0xff, l->shared);
    blockDim = {l->block.x, l->block.y, l->block.z};
    gridDim = {l->grid.x, l->grid.y, l->grid.z};
    fl_emu_now = b;
    fl_fiber_adopt(&b->main);
    b->switches = 0;
    run_grid(b, l->grid);
    fl_emu_counted(1, b->switches);
    fl_emu_now = nullptr;
}

void *fl_emu_shared()
{
    return fl_emu_now->shared;
}
