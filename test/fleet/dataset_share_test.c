/* dataset_share_test.c - which worker trains on what: together they see what
 * one process sees. */
#define SUITE dataset_share
#include "test.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/fleet.h>

#include "fleet/job/dataset.h"

enum { BATCH = 4, MOST = 400, MOST_BATCHES = 200 };

/* The ids of a stream, and where its batches end. */
typedef struct seen {
    int64_t id[MOST];
    int n, end[MOST_BATCHES], n_batch;
} seen;

typedef struct worker {
    fleet *f;
    fleet_dataset *data;
} worker;

/* F files; file i has the samples from begin_of(i) on, so that no two are of
 * one length. */
static int begin_of(int file)
{
    return file * 13 + file * (file - 1) / 2;
}

static const char *numbers(int file)
{
    char name[20], text[1000], *at = text;

    for (int i = begin_of(file); i < begin_of(file + 1); i++)
        at += sprintf(at, "1 %d\n", i);
    snprintf(name, sizeof name, "part-%d", file);
    return test_file(name, text);
}

static worker open_worker(fleet_role_kind kind, int index, int n,
                          const fleet_dataset_options *o,
                          const char *const *files, int n_file)
{
    fleet_role role = {.kind = kind,
                       .index = index,
                       .worker_num = n,
                       .server_endpoints = "inproc://share"};
    fleet_options options = {.seed = 3, .role = &role};
    worker w;

    CHECK_OK(fleet_init(&w.f, &options));
    w.data = fleet_queue_dataset(w.f, o);
    CHECK(w.data != NULL);
    CHECK_OK(fleet_dataset_set_filelist(w.data, files, n_file));
    return w;
}

static void read_pass(const worker *w, bool shared, int slot, seen *s)
{
    fleet_status status;
    fl_stream *stream;
    fl_batch *b;

    memset(s, 0, sizeof *s);
    CHECK_OK(fl_dataset_open(w->data, shared, NULL, &stream));
    while ((status = fl_stream_next(stream, &b)) == FLEET_OK) {
        memcpy(s->id + s->n, b->slot[slot].values,
               (size_t)b->rows * sizeof *s->id);
        s->n += (int)b->rows;
        s->end[s->n_batch++] = s->n;
        fl_stream_release(stream, b);
    }
    CHECK_STATUS(status, FLEET_EEND);
    fl_stream_close(stream);
    w->data->at.pass += shared; /* as the pass that trains on it does */
}

static const fleet_slot id = {.name = "n", .dtype = FLEET_INT64};

/* Worker `index` of n in its pass-th training pass, over the first files. */
static void read_share(int index, int n, int n_file, int64_t shuffle, int pass,
                       seen *s)
{
    fleet_dataset_options o = {
        .batch_size = BATCH, .slots = &id, .n_slot = 1, .shuffle = shuffle};
    const char *files[6];
    worker w;

    for (int i = 0; i < n_file; i++)
        files[i] = numbers(i);
    w = open_worker(FLEET_WORKER, index, n, &o, files, n_file);
    for (int i = 0; i <= pass; i++)
        read_pass(&w, true, 0, s);
    fleet_destroy(w.f);
}

static int begin_of_batch(const seen *s, int batch)
{
    return batch > 0 ? s->end[batch - 1] : 0;
}

/* Worker w has batches w, w + n, ... of the whole, in their order. */
static void check_every_nth(const seen *whole, const seen *part, int w, int n)
{
    CHECK_INT(part->n_batch, (whole->n_batch - w + n - 1) / n);
    for (int k = 0; k < part->n_batch; k++) {
        int from = begin_of_batch(whole, w + k * n);
        int at = begin_of_batch(part, k), rows = part->end[k] - at;

        CHECK_INT(rows, whole->end[w + k * n] - from);
        CHECK(memcmp(part->id + at, whole->id + from,
                     (size_t)rows * sizeof *part->id) == 0);
    }
}

TEST(with_fewer_files_than_workers_each_takes_every_nth_batch)
{
    static seen whole, part;

    for (int64_t shuffle = 0; shuffle < 40; shuffle += 20)
        for (int n = 2; n <= 4; n++)
            for (int n_file = 1; n_file < n; n_file++)
                for (int pass = 0; pass < 2; pass++) {
                    read_share(0, 1, n_file, shuffle, pass, &whole);
                    CHECK_INT(whole.n, begin_of(n_file));
                    for (int w = 0; w < n; w++) {
                        read_share(w, n, n_file, shuffle, pass, &part);
                        CHECK(part.n > 0);
                        check_every_nth(&whole, &part, w, n);
                    }
                }
}

TEST(with_a_file_or_more_for_each_worker_they_read_blocks_of_files)
{
    static seen part;

    for (int n = 1; n <= 4; n++)
        for (int n_file = n; n_file <= 6; n_file++) {
            int file = 0, next = 0;

            for (int w = 0; w < n; w++) {
                read_share(w, n, n_file, 0, 0, &part);
                file += n_file / n + (w < n_file % n);
                CHECK_INT(next + part.n, begin_of(file));
                CHECK_INT(part.n_batch, (part.n + BATCH - 1) / BATCH);
                for (int i = 0; i < part.n; i++)
                    CHECK_INT(part.id[i], next++);
            }
            CHECK_INT(next, begin_of(n_file));
        }
}

TEST(a_shuffle_of_own_files_keeps_every_sample_with_its_worker)
{
    static seen part;

    for (int n = 2; n <= 4; n++) {
        int file = 0, moved = 0;

        for (int w = 0; w < n; w++) {
            char got[MOST] = {0};
            int from = begin_of(file);

            read_share(w, n, 6, 20, 0, &part);
            file += 6 / n + (w < 6 % n);
            CHECK_INT(part.n, begin_of(file) - from);
            for (int i = 0; i < part.n; i++) {
                CHECK(part.id[i] >= from && part.id[i] < begin_of(file));
                CHECK(!got[part.id[i]]++);
                moved += part.id[i] != from + i;
            }
        }
        CHECK(moved > 20);
    }
}

/* Two workers with files of one length do not shuffle them alike. */
TEST(the_first_file_is_part_of_the_seed)
{
    static const char text[] = "1 0\n1 1\n1 2\n1 3\n1 4\n1 5\n1 6\n1 7\n1 8\n";
    const char *files[2] = {test_file("a", text), test_file("b", text)};
    fleet_dataset_options o = {
        .batch_size = BATCH, .slots = &id, .n_slot = 1, .shuffle = 9};
    static seen part[2];

    for (int w = 0; w < 2; w++) {
        worker one = open_worker(FLEET_WORKER, w, 2, &o, files, 2);

        read_pass(&one, true, 0, &part[w]);
        CHECK_INT(part[w].n, 9);
        fleet_destroy(one.f);
    }
    CHECK(memcmp(part[0].id, part[1].id, 9 * sizeof part[0].id[0]) != 0);
}

/* How a pass of a worker of n ends whose command never does. */
static void check_endless(int n, int64_t timeout_ms, int64_t step_ms,
                          const char *words)
{
    const char *file = numbers(0);
    fleet_dataset_options o = {.slots = &id,
                               .n_slot = 1,
                               .pipe_command = "cat; sleep 100",
                               .pipe_timeout_ms = timeout_ms};
    fleet_role role = {.worker_num = n, .server_endpoints = "inproc://share"};
    fleet_options options = {.role = &role, .step_deadline_ms = step_ms};
    fleet_status status;
    fl_stream *stream;
    fl_batch *b;
    worker w;

    CHECK_OK(fleet_init(&w.f, n > 1 ? &options : NULL));
    w.data = fleet_queue_dataset(w.f, &o);
    CHECK_OK(fleet_dataset_set_filelist(w.data, &file, 1));
    CHECK_OK(fl_dataset_open(w.data, true, NULL, &stream));
    while ((status = fl_stream_next(stream, &b)) == FLEET_OK)
        fl_stream_release(stream, b);
    CHECK_INT(status, FLEET_ETIMEDOUT);
    CHECK_CONTAINS(fleet_last_error(), words);
    fl_stream_close(stream);
    fleet_destroy(w.f);
}

TEST(a_command_has_its_timeout_and_in_a_job_the_step_deadline)
{
    check_endless(1, 210, 0, "nothing has come for 210 ms");
    check_endless(2, 0, 220, "nothing has come for 220 ms");
    check_endless(2, 230, 60000, "nothing has come for 230 ms");
}

/* Passes read the same files in orders of their own, and another run's passes
 * in the same ones. */
TEST(the_pass_is_part_of_the_seed)
{
    enum { PASSES = 4 };
    const char *files[] = {numbers(0), numbers(1)};
    fleet_dataset_options o = {
        .batch_size = BATCH, .slots = &id, .n_slot = 1, .shuffle = 20};
    static seen pass[2][PASSES];

    for (int run = 0; run < 2; run++) {
        worker one = open_worker(FLEET_WORKER, 0, 1, &o, files, 2);

        for (int i = 0; i < PASSES; i++)
            read_pass(&one, true, 0, &pass[run][i]);
        fleet_destroy(one.f);
    }
    for (int i = 0; i < PASSES; i++) {
        CHECK_INT(pass[0][i].n, begin_of(2));
        CHECK(memcmp(&pass[0][i], &pass[1][i], sizeof pass[0][i]) == 0);
        for (int k = 0; k < i; k++)
            CHECK(memcmp(pass[0][i].id, pass[0][k].id,
                         (size_t)begin_of(2) * sizeof pass[0][i].id[0]) != 0);
    }
}

TEST(a_worker_for_whom_there_is_no_batch_gets_none)
{
    static seen part;

    read_share(3, 4, 1, 0, 0, &part); /* 13 samples: 4 batches */
    CHECK_INT(part.n, 1);
    for (int w = 4; w < 6; w++) {
        read_share(w, 6, 1, 0, 0, &part);
        CHECK_INT(part.n_batch, 0);
    }
}

/* Else a worker that tests would shuffle otherwise than the others. */
TEST(a_pass_for_test_reads_all_and_leaves_the_training_order_alone)
{
    fleet_dataset_options o = {
        .batch_size = BATCH, .slots = &id, .n_slot = 1, .shuffle = 20};
    const char *files[3] = {numbers(0), numbers(1), numbers(2)};
    static seen second, whole, again;
    worker w;

    read_share(1, 2, 3, 20, 1, &second);
    w = open_worker(FLEET_WORKER, 1, 2, &o, files, 3);
    read_pass(&w, true, 0, &again);
    read_pass(&w, false, 0, &whole);
    CHECK_INT(whole.n, begin_of(3));
    read_pass(&w, true, 0, &again);
    CHECK(memcmp(&again, &second, sizeof second) == 0);
    fleet_destroy(w.f);
}

TEST(a_server_has_no_share_but_may_read_all)
{
    fleet_dataset_options o = {.batch_size = BATCH, .slots = &id, .n_slot = 1};
    const char *file = numbers(0);
    worker w = open_worker(FLEET_SERVER, 0, 2, &o, &file, 1);
    static seen all;
    fl_stream *stream;

    CHECK_FAILS(fl_dataset_open(w.data, true, NULL, &stream), FLEET_ESTATE,
                "this process is a server");
    read_pass(&w, false, 0, &all);
    CHECK_INT(all.n, begin_of(1));
    fleet_destroy(w.f);
}

/* Images of one pixel; image i has label i. */
static void write_idx(const char *files[2], int n)
{
    unsigned char images[16 + 100] = {0, 0, 8, 3, 0, 0, 0, (unsigned char)n,
                                      0, 0, 0, 1, 0, 0, 0, 1};
    unsigned char labels[8 + 100] = {0, 0, 8, 1, 0, 0, 0, (unsigned char)n};

    for (int i = 0; i < n; i++)
        labels[8 + i] = (unsigned char)i;
    files[0] = test_file_bytes("images", images, (size_t)(16 + n));
    files[1] = test_file_bytes("labels", labels, (size_t)(8 + n));
}

TEST(idx_is_shared_by_batch_although_it_is_two_files)
{
    fleet_dataset_options o = {
        .format = FLEET_IDX, .batch_size = BATCH, .shuffle = 30};
    static seen whole, part;
    const char *files[2];

    write_idx(files, 50);
    for (int n = 1; n <= 3; n++)
        for (int w = 0; w < n; w++) {
            worker all = open_worker(FLEET_WORKER, 0, 1, &o, files, 2);
            worker one = open_worker(FLEET_WORKER, w, n, &o, files, 2);

            read_pass(&all, true, 1, &whole);
            read_pass(&one, true, 1, &part);
            CHECK_INT(whole.n, 50);
            check_every_nth(&whole, &part, w, n);
            fleet_destroy(all.f);
            fleet_destroy(one.f);
        }
}

TEST(statistics_are_those_of_all_files_in_every_worker)
{
    fleet_slot x = {.name = "x",
                    .columns = (const char *[]){"0"},
                    .n_column = 1,
                    .transforms = (const fleet_transform[]){FLEET_STANDARDIZE},
                    .n_transform = 1};
    fleet_dataset_options o = {
        .format = FLEET_CSV, .batch_size = 2, .slots = &x, .n_slot = 1};
    const char *files[2] = {test_file("a.csv", "1\n2\n"),
                            test_file("b.csv", "6\n7\n")};

    for (int i = 0; i < 2; i++) {
        worker w = open_worker(FLEET_WORKER, i, 2, &o, files, 2);
        fl_stream *stream;
        fl_batch *b;

        CHECK_OK(fl_dataset_open(w.data, true, NULL, &stream));
        CHECK(w.data->statistics.mean[0] == 4.0);
        CHECK_OK(fl_stream_next(stream, &b));
        CHECK_INT(b->rows, 2);
        CHECK((((const float *)b->slot[0].values)[0] < 0) == (i == 0));
        fl_stream_release(stream, b);
        fl_stream_close(stream);
        fleet_destroy(w.f);
    }
}

/* Before anything of its list is copied. */
static void refuse_length(fleet *f, fleet_slot slot)
{
    const fleet_dataset_options o = {
        .format = FLEET_CSV, .slots = &slot, .n_slot = 1};

    slot.name = "x";
    CHECK(!fleet_queue_dataset(f, &o));
    CHECK_STATUS(fleet_last_status(), FLEET_ECONFIG);
    CHECK_CONTAINS(fleet_last_error(),
                   "dataset: slot \"x\": a list of another length than it "
                   "says");
}

TEST(a_list_of_a_negative_length_is_refused)
{
    const char *text[] = {"0"};
    const fleet_transform none = FLEET_TRANSFORM_NONE;
    const float bucket = 1;
    fleet *f;

    CHECK_OK(fleet_init(&f, NULL));
    refuse_length(f, (fleet_slot){.columns = text, .n_column = -1});
    refuse_length(f, (fleet_slot){.transforms = &none, .n_transform = -1});
    refuse_length(f, (fleet_slot){.equals = text, .n_equals = -1});
    refuse_length(f, (fleet_slot){.from = text, .n_from = -1});
    refuse_length(f, (fleet_slot){.buckets = &bucket, .n_bucket = -1});
    refuse_length(f, (fleet_slot){.buckets = &bucket, .n_bucket = INT_MIN});
    fleet_destroy(f);
}
