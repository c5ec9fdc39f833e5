/* stream.c - the threads between files and batches.
 *
 * All threads do the same: take an empty buffer, fill it with the raw lines of
 * the next batch, parse them, and put the buffer in its place in the order.
 * Only one thread at a time reads, under read_lock, so that is where the order
 * is made; parsing runs side by side. A thread has its buffer before it takes a
 * place in the order, so the batch that is wanted next is always on its way.
 */
#include "data/layout/leases.h"
#include "data/layout/sampling.h"
#include "data/stream.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#include "base/memory.h"
#include "base/thread.h"
#include "data/bad_lines.h"
#include "data/cache_reader.h"
#include "data/io/fd.h"
#include "data/format/formats.h"
#include "data/layout/check_spec.h"
#include "data/memory_reader.h"
#include "data/shuffle.h"
#include "data/stream_internal.h"

enum {
    MOST_HELD = 4, /* buffers that the caller may have, unless it says more */
    SPARE = 2,     /* buffers that wait for it, at least */
    MOST_SPARE = 32,
    SPARE_ROWS = 4096, /* small batches: more buffers, up to this many rows */
    JOB_MS = 50        /* how often a wait asks how the job does */
};

struct fl_stream {
    fl_stream_spec spec;
    fl_parser parser;
    bool cached; /* the parser's lines are rows of caches */
    fl_blocks blocks;
    uint64_t generation; /* of the process, see fl_fork_generation() */
    int wakeup;
    atomic_bool stop;
    pthread_t *thread;
    int n_thread;

    pthread_mutex_t read_lock; /* over these */
    fl_reader *reader;
    bool started, all_read;
    int64_t n_batch; /* read so far, of all shares */
    int64_t n_own;   /* of these, of this share */
    int64_t n_order; /* of this share, and an error at the end */

    pthread_mutex_t lock; /* over these; never held while waiting for data */
    pthread_cond_t filled, emptied;
    fl_batch_buffer **buffer; /* all of them */
    int n_buffer;
    fl_batch_buffer *empty; /* a queue, so that all buffers soon have grown */
    fl_batch_buffer **last;
    int n_empty, n_wake; /* that many wake a thread, so that it seldom sleeps */
    fl_batch_buffer **ready; /* of order k, once it is, at k % n_buffer */
    int64_t next;            /* order of the one that is handed out next */
    int64_t end;             /* order after the last; -1: not known yet */
    bool opened;             /* start_error is known */
    fl_error start_error;
    int n_held;
    fl_error error; /* how the stream ended, once it was reported */

    /* the caller's alone, with a budget of bad lines */
    fl_bad_lines bad;
    int64_t passed; /* batches that were passed over, of first_batch */
    fl_leases leases;
};

/* --- the threads ---------------------------------------------------------- */

/* NULL: the stream is being closed. */
static fl_batch_buffer *take_empty(fl_stream *s)
{
    fl_batch_buffer *buffer = NULL;

    pthread_mutex_lock(&s->lock);
    while (!s->empty && !atomic_load(&s->stop))
        pthread_cond_wait(&s->emptied, &s->lock);
    if (!atomic_load(&s->stop)) {
        buffer = s->empty;
        s->empty = buffer->next;
        s->n_empty--;
        if (!s->empty)
            s->last = &s->empty;
    }
    pthread_mutex_unlock(&s->lock);
    return buffer;
}

/* Under the lock. */
static void add_empty(fl_stream *s, fl_batch_buffer *buffer)
{
    buffer->next = NULL;
    *s->last = buffer;
    s->last = &buffer->next;
    if (++s->n_empty >= s->n_wake)
        pthread_cond_broadcast(&s->emptied);
}

/* Under read_lock, once. */
static fleet_status start_reader(fl_stream *s)
{
    fleet_status status = s->reader->start(s->reader);

    s->started = true;
    pthread_mutex_lock(&s->lock);
    if (status != FLEET_OK)
        fl_error_take(&s->start_error, status);
    s->opened = true;
    pthread_cond_broadcast(&s->filled);
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* Does parsing take samples out of batches? */
static bool may_shrink(const fl_stream_spec *spec)
{
    return spec->max_bad_lines > 0 || fl_sampling_drops(spec);
}

/* How many of our batches are passed over without being parsed. Where batches
 * shrink none is: which of them have rows left is known then. */
static int64_t unparsed(const fl_stream_spec *spec)
{
    return may_shrink(spec) ? 0 : spec->first_batch;
}

/* The place of our next batch; under read_lock. -1: the stream is being closed,
 * and the lease that has it was not given. */
static int64_t next_own(fl_stream *s)
{
    return s->spec.next_lease
               ? fl_leases_find(&s->leases, s->n_own)
               : s->n_own * s->spec.share_count + s->spec.share_index;
}

/* Read the lines of our next batch; batches of other shares are passed over.
 * FLEET_EEND: the last batch may have lines nevertheless. */
static fleet_status read_batch(fl_stream *s, fl_batch_buffer *buffer)
{
    const int64_t size = s->spec.batch_size;

    for (int64_t n = 0, own = next_own(s);;) {
        bool is_own = s->n_batch == own;
        bool ours = is_own && s->n_own >= unparsed(&s->spec);
        fleet_status status;
        int64_t got;

        if (own < 0)
            return fl_fail(FLEET_ESTATE, "the stream was closed");
        buffer->batch.index = s->n_batch++;
        status = s->reader->read(s->reader, ours ? &buffer->lines : NULL, size,
                                 &got);
        buffer->batch.share = status == FLEET_EEND ? 1 : s->reader->share;
        FL_TRY(status);
        n += ours;
        s->n_own += is_own;
        if (ours && n >= s->spec.joined)
            return FLEET_OK;
        own = is_own ? next_own(s) : own;
        if (atomic_load_explicit(&s->stop, memory_order_relaxed))
            return fl_fail(FLEET_ESTATE, "the stream was closed");
    }
}

/* Fill the buffer and give it a place in the order, -1: the files have nothing
 * more. Lines before an error in a file go down with it. */
static int64_t fill_buffer(fl_stream *s, fl_batch_buffer *buffer)
{
    fleet_status status = FLEET_OK;
    int64_t order = -1;

    pthread_mutex_lock(&s->read_lock);
    if (!s->all_read) {
        if (!s->started)
            status = start_reader(s);
        if (status == FLEET_OK)
            status = read_batch(s, buffer);
        if (status != FLEET_EEND || buffer->lines.n > 0)
            order = s->n_order++;
        if (status != FLEET_OK) {
            s->all_read = true;
            pthread_mutex_lock(&s->lock);
            s->end = s->n_order;
            pthread_cond_broadcast(&s->filled);
            pthread_mutex_unlock(&s->lock);
        }
    }
    pthread_mutex_unlock(&s->read_lock);
    buffer->error.code = FLEET_OK;
    if (status != FLEET_OK && status != FLEET_EEND)
        fl_error_take(&buffer->error, status);
    return order;
}

typedef struct worker {
    fl_stream *stream;
    fl_scratch *scratch;
} worker;

static void parse_batch(fl_stream *s, fl_scratch *scratch,
                        fl_batch_buffer *buffer)
{
    if (buffer->error.code == FLEET_OK) {
        fleet_status status = fl_bad_lines_parse(&s->parser, scratch, buffer);

        if (status != FLEET_OK)
            fl_error_take(&buffer->error, status);
    }
    fl_lines_clear(&buffer->lines, &s->blocks);
}

static void *run_thread(void *arg)
{
    worker w = *(worker *)arg;
    fl_stream *s = w.stream;
    fl_batch_buffer *buffer;
    int64_t order = 0;

    fl_free(arg);
    while (order >= 0 && (buffer = take_empty(s)) != NULL) {
        order = fill_buffer(s, buffer);
        if (order >= 0)
            parse_batch(s, w.scratch, buffer);
        pthread_mutex_lock(&s->lock);
        if (order < 0) {
            add_empty(s, buffer);
        } else {
            s->ready[order % s->n_buffer] = buffer;
            pthread_cond_broadcast(&s->filled);
        }
        pthread_mutex_unlock(&s->lock);
    }
    fl_scratch_destroy(w.scratch);
    return NULL;
}

/* --- the caller ----------------------------------------------------------- */

static fleet_status start_worker(fl_stream *s)
{
    fleet_status status;
    worker *w;

    FL_TRY(FL_NEW(&w, sizeof *w));
    w->stream = s;
    FL_GOTO(failed, fl_scratch_create(&w->scratch, &s->parser));
    FL_GOTO(failed, fl_thread_start(&s->thread[s->n_thread], run_thread, w,
                                    "reading data"));
    s->n_thread++;
    return FLEET_OK;
failed:
    fl_scratch_destroy(w->scratch);
    fl_free(w);
    return status;
}

static fleet_status make_buffers(fl_stream *s)
{
    const int64_t rows = s->spec.batch_size;
    const int64_t most =
        rows < SPARE_ROWS / MOST_SPARE ? MOST_SPARE : SPARE_ROWS / rows;
    const int spare = most > SPARE ? (int)most : SPARE;
    const int n = s->spec.n_thread + s->spec.most_held + spare;

    s->n_wake = (n - s->spec.most_held) / 2;
    s->buffer = fl_alloc_array((size_t)n, sizeof(fl_batch_buffer *));
    s->ready = fl_alloc_array((size_t)n, sizeof(fl_batch_buffer *));
    s->thread = fl_alloc_array((size_t)s->spec.n_thread, sizeof(pthread_t));
    if (!s->buffer || !s->ready || !s->thread)
        return FLEET_ENOMEM;
    for (; s->n_buffer < n; s->n_buffer++) {
        FL_TRY(
            fl_batch_buffer_create(&s->buffer[s->n_buffer], &s->parser.layout));
        add_empty(s, s->buffer[s->n_buffer]);
    }
    return FLEET_OK;
}

static fleet_status open_reader(fl_stream *s)
{
    const fl_reader_env env = {&s->parser, &s->blocks, s->wakeup, &s->stop};
    fl_reader *inner;

    FL_TRY(s->spec.memory  ? fl_memory_reader_open(&inner, &env)
           : s->spec.cache ? fl_cache_reader_open(&inner, &env)
                           : fl_format_open(s->spec.format, &inner, &env));
    if (s->spec.shuffle > 0)
        return fl_shuffle_reader_open(&s->reader, &env, inner);
    s->reader = inner;
    return FLEET_OK;
}

/* Until `filled` is signalled, or a while; under the lock. */
static fleet_status wait_for_filled(fl_stream *s)
{
    struct timespec until;

    if (!s->spec.job_status) {
        pthread_cond_wait(&s->filled, &s->lock);
        return FLEET_OK;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += JOB_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    if (pthread_cond_timedwait(&s->filled, &s->lock, &until) != ETIMEDOUT)
        return FLEET_OK;
    return s->spec.job_status(s->spec.job);
}

/* A thread of the stream opens the first file, because a command lives no
 * longer than the thread that started it. */
static fleet_status wait_for_start(fl_stream *s)
{
    fleet_status status = FLEET_OK;

    pthread_mutex_lock(&s->lock);
    while (!s->opened && status == FLEET_OK)
        status = wait_for_filled(s);
    if (status == FLEET_OK)
        status = fl_error_raise(&s->start_error);
    pthread_mutex_unlock(&s->lock);
    return status;
}

fleet_status fl_stream_open_as(fl_stream **stream, const fl_stream_spec *spec,
                               fl_parse *parse_lines)
{
    pthread_condattr_t monotonic;
    fleet_status status;
    fl_error kept;
    fl_stream *s;

    FL_TRY(FL_NEW(&s, sizeof *s));
    s->spec = *spec;
    if (spec->most_held < MOST_HELD)
        s->spec.most_held = MOST_HELD;
    s->wakeup = -1;
    s->end = -1;
    s->last = &s->empty;
    s->generation = fl_fork_generation();
    if (spec->memory)
        s->bad.n = spec->memory->memory->bad_lines;
    fl_blocks_init(&s->blocks);
    pthread_mutex_init(&s->read_lock, NULL);
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->filled, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_cond_init(&s->emptied, NULL);
    fl_leases_init(&s->leases, &s->spec);
    FL_GOTO(failed, fl_fd_wakeup(&s->wakeup));
    FL_GOTO(failed, fl_parser_init(&s->parser, &s->spec, parse_lines));
    s->parser.cached = &s->cached;
    FL_GOTO(failed, make_buffers(s));
    FL_GOTO(failed, open_reader(s));
    for (int i = 0; i < spec->n_thread; i++)
        FL_GOTO(failed, start_worker(s));
    FL_GOTO(failed, wait_for_start(s));
    *stream = s;
    return FLEET_OK;
failed:
    fl_error_take(&kept, status);
    fl_stream_close(s);
    return fl_error_raise(&kept);
}

fleet_status fl_stream_open(fl_stream **stream, const fl_stream_spec *spec)
{
    *stream = NULL;
    FL_TRY(fl_spec_check(spec));
    FL_TRY(fl_spec_check_statistics(spec));
    return fl_stream_open_as(stream, spec,
                             spec->memory  ? fl_memory_parse
                             : spec->cache ? fl_cache_parse
                                           : fl_format_parse(spec->format));
}

/* Under the lock. */
static fleet_status next_batch(fl_stream *s, fl_batch **batch)
{
    fl_batch_buffer **at = &s->ready[s->next % s->n_buffer], *buffer;

    if (s->error.code != FLEET_OK)
        return fl_error_raise(&s->error);
    while (!*at && (s->end < 0 || s->next < s->end))
        FL_TRY(wait_for_filled(s));
    buffer = *at;
    *at = NULL;
    if (!buffer)
        return FLEET_EEND; /* no failure: it leaves no text behind */
    s->next++;
    if (buffer->error.code != FLEET_OK) {
        s->error = buffer->error;
        add_empty(s, buffer);
        return fl_error_raise(&s->error);
    }
    buffer->held = true;
    s->n_held++;
    *batch = &buffer->batch;
    return FLEET_OK;
}

/* Unless all has been read, leases have the batch that comes next. */
static fleet_status ask_leases(fl_stream *s)
{
    bool all_read;

    pthread_mutex_lock(&s->lock);
    all_read = s->end >= 0 || s->error.code != FLEET_OK;
    pthread_mutex_unlock(&s->lock);
    return all_read ? FLEET_OK
                    : fl_leases_ask(&s->leases, s->next + unparsed(&s->spec));
}

/* As all errors do: a budget of bad lines that is exceeded, a lease that does
 * not come. */
static fleet_status end_stream(fl_stream *s, fleet_status status)
{
    pthread_mutex_lock(&s->lock);
    fl_error_take(&s->error, status);
    pthread_mutex_unlock(&s->lock);
    return fl_error_raise(&s->error);
}

static fleet_status take_batch(fl_stream *s, fl_batch **batch)
{
    fleet_status status = s->spec.next_lease ? ask_leases(s) : FLEET_OK;

    *batch = NULL;
    if (status != FLEET_OK)
        return end_stream(s, status);
    pthread_mutex_lock(&s->lock);
    status =
        s->n_held < s->spec.most_held
            ? next_batch(s, batch)
            : fl_fail(FLEET_ESTATE, "%d batches are held already", s->n_held);
    pthread_mutex_unlock(&s->lock);
    if (s->spec.next_lease && status == FLEET_OK)
        fl_leases_count(&s->leases, (*batch)->rows);
    else if (s->spec.next_lease && status == FLEET_EEND)
        fl_leases_log(&s->leases);
    return status;
}

/* *wanted: it has rows, and is behind the batches that are passed over. */
static fleet_status look_at_lines(fl_stream *s, const fl_batch *batch,
                                  bool *wanted)
{
    const bool over = s->passed < s->spec.first_batch;

    FL_TRY(
        fl_bad_lines_count(&s->bad, &s->spec, (const fl_batch_buffer *)batch));
    s->passed += over && batch->rows > 0;
    *wanted = !over && batch->rows > 0;
    return FLEET_OK;
}

/* Where batches shrink. */
static fleet_status next_wanted(fl_stream *s, fl_batch **batch)
{
    for (;;) {
        bool wanted = false;
        fleet_status status = take_batch(s, batch);

        if (status == FLEET_EEND)
            fl_bad_lines_log(&s->bad, &s->spec);
        FL_TRY(status);
        status = look_at_lines(s, *batch, &wanted);
        if (wanted)
            return FLEET_OK;
        fl_stream_release(s, *batch);
        *batch = NULL;
        if (status != FLEET_OK)
            return end_stream(s, status);
    }
}

fleet_status fl_stream_next(fl_stream *s, fl_batch **batch)
{
    *batch = NULL;
    if (s->generation != fl_fork_generation())
        return fl_fail(FLEET_ESTATE, "a stream cannot be used after fork()");
    return may_shrink(&s->spec) ? next_wanted(s, batch) : take_batch(s, batch);
}

int64_t fl_stream_bad_lines(const fl_stream *s)
{
    return s->bad.n;
}

void fl_stream_release(fl_stream *s, fl_batch *batch)
{
    fl_batch_buffer *buffer = (fl_batch_buffer *)batch;

    if (!buffer || s->generation != fl_fork_generation())
        return;
    pthread_mutex_lock(&s->lock);
    if (buffer->held) {
        buffer->held = false;
        s->n_held--;
        add_empty(s, buffer);
    }
    pthread_mutex_unlock(&s->lock);
}

static void stop_threads(fl_stream *s)
{
    atomic_store(&s->stop, true);
    fl_leases_stop(&s->leases);
    if (s->wakeup >= 0)
        fl_fd_wake(s->wakeup);
    pthread_mutex_lock(&s->lock);
    pthread_cond_broadcast(&s->emptied);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->n_thread; i++)
        pthread_join(s->thread[i], NULL);
}

void fl_stream_close(fl_stream *s)
{
    /* After fork() its threads, locks and commands are the parent's. */
    if (!s || s->generation != fl_fork_generation())
        return;
    stop_threads(s);
    if (s->reader)
        s->reader->close(s->reader);
    for (int i = 0; i < s->n_buffer; i++)
        fl_batch_buffer_destroy(s->buffer[i], &s->parser.layout, &s->blocks);
    fl_parser_done(&s->parser);
    fl_blocks_done(&s->blocks);
    fl_fd_close(&s->wakeup);
    pthread_cond_destroy(&s->filled);
    pthread_cond_destroy(&s->emptied);
    fl_leases_done(&s->leases);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->read_lock);
    fl_free(s->thread);
    fl_free(s->ready);
    fl_free(s->buffer);
    fl_free(s);
}
