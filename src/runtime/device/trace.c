/* trace.c - events kept in memory, and written as a file of Chrome's trace
 * events. */
#include "runtime/device/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/file/file_writer.h"
#include "base/memory.h"
#include "base/text.h"

typedef enum kind { STEP, BEGIN, END } kind;

typedef struct event {
    const char *name;
    kind kind;
    int number; /* the thread, or which work under way */
    int64_t begin_ns, end_ns, bytes;
} event;

struct fl_trace {
    char *folder;
    _Atomic int64_t n; /* also of events that were not kept */
    event event[];
};

fl_trace *fl_trace_open(void)
{
    const char *folder = getenv("FLEET_TRACE");
    fl_trace *t;

    if (!folder || !*folder)
        return NULL;
    t = fl_alloc(sizeof *t + FL_TRACE_MOST * sizeof *t->event);
    if (t && !(t->folder = fl_strdup(folder))) {
        fl_free(t);
        return NULL;
    }
    return t;
}

static void add_event(fl_trace *t, const event *e)
{
    int64_t at = atomic_fetch_add(&t->n, 1);

    if (at < FL_TRACE_MOST)
        t->event[at] = *e;
}

void fl_trace_step(fl_trace *t, const char *name, int thread, int64_t begin_ns,
                   int64_t end_ns)
{
    if (t)
        add_event(t, &(event){name, STEP, thread, begin_ns, end_ns, 0});
}

void fl_trace_begin(fl_trace *t, const char *name, int number, int64_t bytes)
{
    if (t)
        add_event(t, &(event){name, BEGIN, number, fl_now_ns(), 0, bytes});
}

void fl_trace_end(fl_trace *t, const char *name, int number)
{
    if (t)
        add_event(t, &(event){name, END, number, fl_now_ns(), 0, 0});
}

/* --- the file ------------------------------------------------------------ */

static const char *name_of(bool is_server)
{
    return is_server ? "server" : "worker";
}

static void print_event(const event *e, int process, fl_text *out)
{
    fl_text_add(out, "{\"name\":\"%s\",\"pid\":%d,\"ts\":%" PRId64 ".%03d",
                e->name, process, e->begin_ns / 1000,
                (int)(e->begin_ns % 1000));
    if (e->kind == STEP)
        fl_text_add(out,
                    ",\"ph\":\"X\",\"tid\":%d,\"dur\":%" PRId64 ".%03d},\n",
                    e->number, (e->end_ns - e->begin_ns) / 1000,
                    (int)((e->end_ns - e->begin_ns) % 1000));
    else
        fl_text_add(out,
                    ",\"ph\":\"%s\",\"tid\":0,\"cat\":\"comm\",\"id\":%" PRId64
                    ",\"args\":{\"bytes\":%" PRId64 "}},\n",
                    e->kind == BEGIN ? "b" : "e",
                    (int64_t)process << 32 | e->number, e->bytes);
}

static fleet_status print_events(const fl_trace *t, bool is_server, int index,
                                 fl_text *out)
{
    /* Files of a job are looked at together: no two of its processes share a
     * number, and none has 0, which viewers take for the idle process. */
    int process = 2 * index + (is_server ? 2 : 1);
    int64_t all = atomic_load(&t->n);
    int64_t n = all < FL_TRACE_MOST ? all : FL_TRACE_MOST;

    fl_text_add(out,
                "{\"displayTimeUnit\":\"ns\",\"dropped\":%" PRId64
                ",\"traceEvents\":[\n",
                all - n);
    for (int64_t i = 0; i < n; i++)
        print_event(&t->event[i], process, out);
    fl_text_add(out,
                "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,"
                "\"args\":{\"name\":\"%s %d\"}}\n]}\n",
                process, name_of(is_server), index);
    return out->status;
}

static fleet_status write_text(const fl_trace *t, const char *name,
                               const fl_text *text)
{
    if (mkdir(t->folder, 0777) != 0 && errno != EEXIST)
        return fl_fail(FLEET_EIO, "FLEET_TRACE: cannot make the folder %s: %s",
                       t->folder, strerror(errno));
    return fl_file_write(t->folder, name, text->chars, text->length, NULL);
}

fleet_status fl_trace_write(fl_trace *t, bool is_server, int index)
{
    fl_text text = {0};
    fleet_status status;
    char name[80];

    if (!t)
        return FLEET_OK;
    snprintf(name, sizeof name, "%s-%d.%d.json", name_of(is_server), index,
             (int)getpid());
    status = print_events(t, is_server, index, &text);
    if (status == FLEET_OK)
        status = write_text(t, name, &text);
    fl_text_done(&text);
    return status;
}

void fl_trace_close(fl_trace *t)
{
    if (!t)
        return;
    fl_free(t->folder);
    fl_free(t);
}
