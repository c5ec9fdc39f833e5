/* event_log.c - events as protobuf's wire format has them, in records with
 * checksums. */
#include "fleet/watch/event_log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "numbers as they lie");

/* --- protobuf ------------------------------------------------------------- */

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; /* kinds of fields */

/* Numbers of fields. */
enum {
    EVENT_TIME = 1,
    EVENT_STEP = 2,
    EVENT_VERSION = 3,
    EVENT_SUMMARY = 5,
    EVENT_SESSION = 7,
    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_SIMPLE = 2,
    VALUE_HISTOGRAM = 5,
    HISTOGRAM_MIN = 1,
    HISTOGRAM_MAX = 2,
    HISTOGRAM_NUM = 3,
    HISTOGRAM_SUM = 4,
    HISTOGRAM_SQUARES = 5,
    HISTOGRAM_LIMITS = 6,
    HISTOGRAM_COUNTS = 7,
    SESSION_STATUS = 1
};

static void put_varint(fl_text *t, uint64_t x)
{
    char bytes[10];
    size_t n = 0;

    for (; x >= 128; x >>= 7)
        bytes[n++] = (char)(x | 128);
    bytes[n++] = (char)x;
    fl_text_bytes(t, bytes, n);
}

static void put_key(fl_text *t, int field, int kind)
{
    put_varint(t, (uint64_t)field << 3 | (uint64_t)kind);
}

static void put_int(fl_text *t, int field, int64_t x)
{
    put_key(t, field, VARINT);
    put_varint(t, (uint64_t)x);
}

static void put_bytes(fl_text *t, int field, const void *bytes, size_t n)
{
    put_key(t, field, BYTES);
    put_varint(t, n);
    fl_text_bytes(t, bytes, n);
}

/* A message inside one, which is done with; a failure of its memory is the
 * outer one's. */
static void put_message(fl_text *t, int field, fl_text *inner)
{
    put_bytes(t, field, fl_text_chars(inner), inner->length);
    if (inner->status != FLEET_OK)
        t->status = inner->status;
    fl_text_done(inner);
}

static void put_scalar(fl_text *summary, const fl_event_scalar *s)
{
    const float x = (float)s->value;
    fl_text value = {0};

    put_bytes(&value, VALUE_TAG, s->tag, strlen(s->tag));
    put_key(&value, VALUE_SIMPLE, FIXED32);
    fl_text_bytes(&value, &x, sizeof x);
    put_message(summary, SUMMARY_VALUE, &value);
}

static void put_double(fl_text *t, int field, double x)
{
    put_key(t, field, FIXED64);
    fl_text_bytes(t, &x, sizeof x);
}

/* Of numbers that are all the same the last bucket alone. */
static void put_histogram(fl_text *summary, const fl_event_histogram *h)
{
    const fl_histogram *of = &h->of;
    const int first = of->most > of->least ? 0 : FL_BUCKETS - 1;
    double limit[FL_BUCKETS], count[FL_BUCKETS];
    fl_text value = {0}, histogram = {0};
    int n = 0;

    for (int i = first; i < FL_BUCKETS; i++, n++) {
        limit[n] = fl_histogram_limit(of, i);
        count[n] = (double)(first > 0 ? of->n : of->count[i]);
    }
    put_double(&histogram, HISTOGRAM_MIN, of->least);
    put_double(&histogram, HISTOGRAM_MAX, of->most);
    put_double(&histogram, HISTOGRAM_NUM, (double)of->n);
    put_double(&histogram, HISTOGRAM_SUM, of->sum);
    put_double(&histogram, HISTOGRAM_SQUARES, of->squares);
    put_bytes(&histogram, HISTOGRAM_LIMITS, limit, (size_t)n * sizeof *limit);
    put_bytes(&histogram, HISTOGRAM_COUNTS, count, (size_t)n * sizeof *count);
    put_bytes(&value, VALUE_TAG, h->tag, strlen(h->tag));
    put_message(&value, VALUE_HISTOGRAM, &histogram);
    put_message(summary, SUMMARY_VALUE, &value);
}

static void begin_event(fl_text *t, int64_t step)
{
    struct timespec now;
    double seconds;

    clock_gettime(CLOCK_REALTIME, &now);
    seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    put_key(t, EVENT_TIME, FIXED64);
    fl_text_bytes(t, &seconds, sizeof seconds);
    put_int(t, EVENT_STEP, step);
}

/* --- records -------------------------------------------------------------- */

static void frame(fl_text *record, const fl_text *event)
{
    const uint64_t size = event->length;
    const uint32_t of_size = fl_crc32c_masked(&size, sizeof size);
    const uint32_t of_event =
        fl_crc32c_masked(fl_text_chars(event), event->length);

    fl_text_bytes(record, &size, sizeof size);
    fl_text_bytes(record, &of_size, sizeof of_size);
    fl_text_bytes(record, event->chars, event->length);
    fl_text_bytes(record, &of_event, sizeof of_event);
}

/* In one write. A part of a record would hide all behind it: it goes. */
static void write_record(fl_event_log *e, const fl_text *record)
{
    fl_hush hush;
    int failed;

    fl_hush_begin(&hush);
    failed = fl_disk_write(e->fd, record->chars, record->length);
    fl_hush_end(&hush);
    if (!failed)
        e->size += (int64_t)record->length;
    else if (ftruncate(e->fd, (off_t)e->size) != 0)
        failed = errno;
    if (failed && !e->has_failed)
        FL_WARN(e->log, "metrics_log: %s: events are lost: %s", e->path,
                strerror(failed));
    e->has_failed = failed != 0;
}

/* The event is done with. */
static fleet_status add_event(fl_event_log *e, fl_text *event)
{
    fleet_status status = event->status;
    fl_text record = {0};

    if (status == FLEET_OK) {
        frame(&record, event);
        status = record.status;
    }
    if (status == FLEET_OK)
        write_record(e, &record);
    fl_text_done(&record);
    fl_text_done(event);
    return status;
}

/* --- a file --------------------------------------------------------------- */

/* What TensorBoard looks for first. */
static fleet_status begin_file(fl_event_log *e, int64_t step)
{
    static const char version[] = "brain.Event:2";
    enum { START = 1 };
    fl_text event = {0}, session = {0};

    begin_event(&event, 0);
    put_bytes(&event, EVENT_VERSION, version, strlen(version));
    FL_TRY(add_event(e, &event));
    event = (fl_text){0};
    put_int(&session, SESSION_STATUS, START);
    begin_event(&event, step);
    put_message(&event, EVENT_SESSION, &session);
    return add_event(e, &event);
}

/* TensorBoard reads a folder's files in the order of their names. */
static fleet_status name_file(fl_event_log *e, const char *folder, int try)
{
    struct timespec now;
    char host[65] = "", name[200];

    clock_gettime(CLOCK_REALTIME, &now);
    if (gethostname(host, sizeof host - 1) != 0 || strchr(host, '/'))
        snprintf(host, sizeof host, "localhost");
    snprintf(name, sizeof name, "events.out.tfevents.%010lld.%09ld.%s.%ld.%d",
             (long long)now.tv_sec, now.tv_nsec, host, (long)getpid(), try);
    fl_free(e->path);
    e->path = fl_path_join(folder, name);
    return e->path ? FLEET_OK : FLEET_ENOMEM;
}

static fleet_status make_file(fl_event_log *e, const char *folder)
{
    enum { TRIES = 100 };

    if (fl_disk_make_folder(folder, 0777) != 0 && errno != EEXIST)
        return fl_fail(FLEET_EIO, "metrics_log: cannot make %s: %s", folder,
                       strerror(errno));
    for (int i = 0; e->fd < 0 && i < TRIES; i++) {
        FL_TRY(name_file(e, folder, i));
        e->fd = fl_fd_lift(fl_disk_open(
            AT_FDCWD, e->path,
            O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
        if (e->fd < 0 && errno != EEXIST)
            break;
    }
    return e->fd >= 0 ? FLEET_OK
                      : fl_fail(FLEET_EIO, "metrics_log: cannot make %s: %s",
                                e->path, strerror(errno));
}

fleet_status fl_event_log_open(fl_event_log *e, const char *folder,
                               int64_t step, fl_log *log)
{
    fleet_status status;

    *e = (fl_event_log){.fd = -1, .log = log};
    status = make_file(e, folder);
    if (status == FLEET_OK)
        status = begin_file(e, step);
    if (status != FLEET_OK)
        fl_event_log_close(e);
    return status;
}

fleet_status fl_event_log_add(fl_event_log *e, int64_t step,
                              const fl_event_scalar *scalar, int n)
{
    fl_text event = {0}, summary = {0};

    for (int i = 0; i < n; i++)
        if (isfinite(scalar[i].value))
            put_scalar(&summary, &scalar[i]);
    begin_event(&event, step);
    put_message(&event, EVENT_SUMMARY, &summary);
    return add_event(e, &event);
}

fleet_status fl_event_log_add_histograms(fl_event_log *e, int64_t step,
                                         const fl_event_histogram *histogram,
                                         int n)
{
    fl_text event = {0}, summary = {0};

    for (int i = 0; i < n; i++)
        if (histogram[i].of.n > 0)
            put_histogram(&summary, &histogram[i]);
    begin_event(&event, step);
    put_message(&event, EVENT_SUMMARY, &summary);
    return add_event(e, &event);
}

void fl_event_log_flush(fl_event_log *e)
{
    if (e->fd >= 0 && fl_disk_flush(e->fd) != 0)
        FL_WARN(e->log, "metrics_log: %s: events may be lost in a crash: %s",
                e->path, strerror(errno));
}

void fl_event_log_close(fl_event_log *e)
{
    if (e->fd >= 0)
        close(e->fd);
    fl_free(e->path);
    *e = (fl_event_log){.fd = -1};
}
