/* journal_pipe_test.c - records from one thread to another one. */
#define SUITE journal_pipe
#include "ps/journal/journal_pipe.h"
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/memory.h"
#include "base/thread.h"

enum { RECORDS = 500, BYTES = 100, MOST = 1000 };

typedef struct writer {
    fl_journal_pipe *pipe;
    atomic_int n; /* put so far */
    fleet_status status;
} writer;

static fleet_status put_one(fl_journal_pipe *p, uint16_t kind, size_t size)
{
    static const char bytes[4 * BYTES];
    fl_journal_sink to = fl_journal_pipe_sink(p);

    return to.put(to.arg, kind, &(fl_journal_part){bytes, size}, 1);
}

static void *write_all(void *arg)
{
    writer *w = arg;

    for (int i = 0; i < RECORDS && w->status == FLEET_OK; i++) {
        w->status = put_one(w->pipe, (uint16_t)i, (size_t)(i % BYTES));
        atomic_fetch_add(&w->n, w->status == FLEET_OK);
    }
    fl_journal_pipe_end(w->pipe, w->status);
    return NULL;
}

/* Each record once, in order, whole, and never more ahead than was allowed. */
TEST(records_come_in_batches_in_their_order)
{
    size_t capacity = 0, size = 0, at;
    fl_journal_record r;
    uint64_t next = 1;
    char *bytes = NULL;
    bool over = false;
    writer w = {0};
    pthread_t thread;

    CHECK_OK(fl_journal_pipe_create(&w.pipe, MOST, NULL, NULL));
    CHECK_OK(fl_thread_start(&thread, write_all, &w, "a writer"));
    while (!over) {
        CHECK_OK(fl_journal_pipe_take(w.pipe, 2 * BYTES, &bytes, &capacity,
                                      &size, &over));
        for (at = 0; at < size; next++) {
            CHECK(fl_journal_record_read(bytes + at, size - at, next, &r));
            CHECK_INT(r.kind, next - 1);
            CHECK_INT(r.size, (next - 1) % BYTES);
            at += fl_journal_record_bytes(r.size);
        }
        CHECK(at == size && size <= 2 * BYTES + FL_JOURNAL_RECORD_SIZE);
        CHECK((uint64_t)atomic_load(&w.n) <=
              next + MOST / FL_JOURNAL_RECORD_SIZE + 1);
    }
    CHECK_INT(next, RECORDS + 1);
    pthread_join(thread, NULL);
    fl_journal_pipe_destroy(w.pipe);
    fl_free(bytes);
}

TEST(a_writer_that_waits_is_told_that_nobody_takes)
{
    writer w = {0};
    pthread_t thread;

    CHECK_OK(fl_journal_pipe_create(&w.pipe, MOST, NULL, NULL));
    CHECK_OK(fl_thread_start(&thread, write_all, &w, "a writer"));
    while (atomic_load(&w.n) < 10)
        fl_relax_cpu();
    fl_journal_pipe_stop(w.pipe);
    pthread_join(thread, NULL);
    CHECK_INT(w.status, FLEET_EPEER);
    CHECK(atomic_load(&w.n) < RECORDS);
    fl_journal_pipe_destroy(w.pipe);
}

TEST(what_a_writer_has_failed_with_is_heard)
{
    size_t capacity = 0, size = 0;
    char *bytes = NULL;
    bool over = false;
    fl_journal_pipe *p;

    CHECK_OK(fl_journal_pipe_create(&p, MOST, NULL, NULL));
    CHECK_OK(put_one(p, 1, 8));
    fl_fail(FLEET_EIO, "the disk is gone");
    fl_journal_pipe_end(p, FLEET_EIO);
    CHECK_INT(fl_journal_pipe_take(p, MOST, &bytes, &capacity, &size, &over),
              FLEET_EIO);
    CHECK_TEXT(fleet_last_error(), "the disk is gone");
    CHECK(!over && size == 0);
    fl_journal_pipe_destroy(p);
    fl_free(bytes);
}
