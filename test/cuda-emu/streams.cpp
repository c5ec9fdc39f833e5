/* streams.cpp - streams and events of the emulated device.
 *
 * What is queued is done at once, or late: when somebody waits for it, or, by a
 * seed, at any time between. Each stream goes its own way then: one may be far
 * behind what is queued while another one has nothing left to do. */
#include "cuda_runtime.h"

#include <cstdlib>
#include <ctime>
#include <deque>
#include <mutex>
#include <new>
#include <vector>

#include "control.h"
#include "inside.h"

/* So much of a stream's work, and of what others do on it. */
struct point {
    cudaStream_t stream; /* NULL: nothing */
    long after, begun;
};
struct task {
    std::function<void()> work;
    point until; /* it waits for that */
    long after;  /* so many of others have ended */
};
struct fl_emu_stream {
    int device;
    long begun, ended;     /* by others */
    std::mutex lock;       /* of the rest, and who does it */
    std::deque<task> work; /* not done yet */
    long done;
    unsigned eager; /* of 256: how often it goes on by itself */
};
struct fl_emu_event {
    double at; /* seconds; 0: not recorded */
    point is;
};

/* Those that were destroyed stay: what waits for them has what it waits for. */
static std::mutex lock_all;
static std::vector<cudaStream_t> all;

static const timespec pause = {0, 20000};

static double now()
{
    timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* --- what is queued ------------------------------------------------------- */

static long begun(cudaStream_t s)
{
    return s ? __atomic_load_n(&s->begun, __ATOMIC_SEQ_CST) : 0;
}

static bool has_ended(cudaStream_t s, long until)
{
    return !s || __atomic_load_n(&s->ended, __ATOMIC_SEQ_CST) >= until;
}

static bool is_past(const point &p)
{
    return !p.stream ||
           (__atomic_load_n(&p.stream->done, __ATOMIC_SEQ_CST) >= p.after &&
            has_ended(p.stream, p.begun));
}

enum outcome { NOTHING, DID, WAITS };

/* Do what is first on it, if that is ready; if not, what it waits for. */
static outcome do_first(cudaStream_t s, long after, point *until)
{
    std::lock_guard<std::mutex> held(s->lock);

    *until = {};
    if (s->done >= after || s->work.empty())
        return NOTHING;
    task &first = s->work.front();
    *until = first.until;
    if (!has_ended(s, first.after) || !is_past(first.until))
        return WAITS;
    std::function<void()> work = std::move(first.work);
    s->work.pop_front();
    work();
    __atomic_fetch_add(&s->done, 1, __ATOMIC_SEQ_CST);
    __atomic_fetch_sub(&fl_emu_is.waiting, 1, __ATOMIC_SEQ_CST);
    return DID;
}

/* As far as it can be done now: is it? */
static bool do_until(cudaStream_t s, long after)
{
    point until;

    while (s)
        switch (do_first(s, after, &until)) {
        case NOTHING:
            return true;
        case WAITS:
            if (!until.stream || is_past(until) ||
                !do_until(until.stream, until.after) || !is_past(until))
                return false;
            break;
        case DID:
            break;
        }
    return true;
}

/* It goes on by itself, for a while. */
static void wander(cudaStream_t s)
{
    point until;

    while (fl_emu_is.seed && !fl_emu_is.busy && fl_emu_roll(256) < s->eager)
        if (do_first(s, s->done + 1, &until) != DID)
            break;
}

static bool puts_off()
{
    return fl_emu_is.late || fl_emu_is.seed;
}

/* What comes behind work of others waits for its end, as on a real stream: who
 * queues it does not. */
static void enqueue(cudaStream_t s, task t)
{
    if (!s) {
        while (!is_past(t.until))
            nanosleep(&pause, nullptr);
        t.work();
        return;
    }
    {
        std::lock_guard<std::mutex> held(s->lock);

        t.after = begun(s);
        if (puts_off() || !s->work.empty() || !has_ended(s, t.after) ||
            !is_past(t.until)) {
            s->work.push_back(std::move(t));
            __atomic_fetch_add(&fl_emu_is.waiting, 1, __ATOMIC_SEQ_CST);
        } else {
            t.work();
        }
    }
    wander(s);
}

void fl_emu_enqueue(cudaStream_t s, std::function<void()> work)
{
    enqueue(s, {std::move(work), {}, 0});
}

void fl_emu_queue_pinned(cudaStream_t s, const fl_emu_work &work)
{
    if (fl_emu_captured(s, work))
        return;
    __atomic_fetch_add(&fl_emu_is.queued, 1, __ATOMIC_RELAXED);
    fl_emu_enqueue(s, fl_emu_pinned_work(work));
}

void fl_emu_queue(cudaStream_t s, std::function<void()> work)
{
    fl_emu_queue_pinned(s, {std::move(work), nullptr, 0});
}

/* So much of its work there is, done or not. */
static long queued(cudaStream_t s)
{
    if (!s)
        return 0;
    std::lock_guard<std::mutex> held(s->lock);
    return s->done + (long)s->work.size();
}

cudaError_t fl_emu_do_all(cudaStream_t s)
{
    long until = begun(s), after = queued(s);

    while (!do_until(s, after) || !has_ended(s, until))
        nanosleep(&pause, nullptr);
    return cudaGetLastError();
}

/* --- streams -------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    static const unsigned eager[] = {0, 128, 250};
    std::lock_guard<std::mutex> held(lock_all);

    *s = new (std::nothrow) fl_emu_stream();
    if (!*s)
        return fl_emu_error(cudaErrorMemoryAllocation, "out of memory");
    all.push_back(*s);
    (*s)->device = fl_emu_device;
    (*s)->eager = fl_emu_is.seed ? eager[fl_emu_roll(3)] : 0;
    return fl_emu_need_devices();
}

long fl_emu_stream_begin(void *stream)
{
    cudaStream_t s = static_cast<cudaStream_t>(stream);

    __atomic_fetch_add(&s->begun, 1, __ATOMIC_SEQ_CST);
    return queued(s);
}

bool fl_emu_stream_reach(void *stream, long after)
{
    return do_until(static_cast<cudaStream_t>(stream), after);
}

void fl_emu_stream_end(void *stream)
{
    __atomic_fetch_add(&static_cast<cudaStream_t>(stream)->ended, 1,
                       __ATOMIC_SEQ_CST);
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    if (s && fl_emu_captures(s))
        return fl_emu_spoil("cudaStreamDestroy");
    do_until(s, queued(s)); /* and no longer: a real one does not wait */
    return cudaSuccess;
}

/* Not ready as often as not, by the seed, though a bit nearer to it. */
static bool tarries(cudaStream_t s)
{
    point until;

    if (!fl_emu_is.seed || !s || fl_emu_roll(2))
        return false;
    return do_first(s, s->done + 1, &until) != NOTHING;
}

static cudaError_t ask(const point &p)
{
    if (fl_emu_is_lost())
        return fl_emu_lost();
    if (fl_emu_is.busy || tarries(p.stream) || !do_until(p.stream, p.after) ||
        !is_past(p))
        return fl_emu_error(cudaErrorNotReady, "not ready"); /* kept, too */
    return cudaGetLastError();
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    if (fl_emu_captures(s))
        return fl_emu_spoil("cudaStreamQuery");
    return ask({s, queued(s), begun(s)});
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    if (fl_emu_captures(s))
        return fl_emu_spoil("cudaStreamSynchronize");
    return fl_emu_do_all(s);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    if (fl_emu_captures(s))
        return fl_emu_spoil("cudaStreamWaitEvent");
    enqueue(s, {[] {}, e->is, 0});
    return cudaSuccess;
}

/* --- events --------------------------------------------------------------- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    *e = static_cast<cudaEvent_t>(std::calloc(1, sizeof **e));
    fl_emu_keep(*e);
    return *e ? cudaSuccess
              : fl_emu_error(cudaErrorMemoryAllocation, "out of memory");
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    fl_emu_forget(e);
    std::free(e);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    if (fl_emu_captures(s))
        return fl_emu_spoil("cudaEventRecord");
    e->is = {s, queued(s), begun(s)};
    e->at = now();
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    if (fl_emu_captures())
        return fl_emu_spoil("cudaEventQuery");
    return ask(e->is);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    if (from->at <= 0 || to->at <= 0)
        return fl_emu_error(cudaErrorInvalidValue, "an event not recorded");
    *ms = (float)((to->at - from->at) * 1e3);
    return cudaSuccess;
}
