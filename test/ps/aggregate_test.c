/* aggregate_test.c - what a lane does with one piece of a message: rows that a
 * pull has found are the ones its push changes, and what is no sound pull or
 * step is refused. */
#define SUITE aggregate
#include "test.h"

#include <string.h>

#include <fleet/fleet.h>

#include "base/memory.h"
#include "fleet/job/handle.h"
#include "fleet/servers.h"
#include "net_kit.h"
#include "ps/aggregate/aggregate_internal.h"

enum { DIM = 3, N = 5 };

/* A store with one table, and a lane's unit that owns everything. */
typedef struct scene {
    fleet *f;
    fl_partition layout;
    fl_aggregate unit;
    fl_row_cache *found;
} scene;

static void open_scene(scene *s, bool remembers)
{
    fleet_ctr_options c = {.embedding_dim = DIM,
                           .hidden = (int64_t[]){2},
                           .n_hidden = 1,
                           .n_ids = 1,
                           .ids = (fleet_id_slot[]){{.name = "1"}}};
    fleet_program *p;
    fleet_model m;

    *s = (scene){.f = NULL};
    if (!net_pool)
        net_open_pool();
    CHECK_OK(fleet_init(&s->f, NULL));
    p = fleet_program_create(s->f);
    fleet_ctr_dnn(p, &c, &m);
    CHECK_OK(fleet_minimize(fleet_adagrad(s->f, 0.5f, NULL), m.loss));
    CHECK_OK(fl_add_programs(s->f));
    CHECK_OK(fl_partition_make(&s->layout, s->f->store, 1));
    CHECK_OK(fl_aggregate_init(&s->unit, &s->layout,
                               fl_bucket_range(0, FL_N_BUCKET)));
    if (remembers)
        CHECK_OK(FL_NEW(&s->found, FL_N_ROW_CACHE * sizeof *s->found));
}

static void close_scene(scene *s)
{
    if (s->found)
        fl_row_cache_done(s->found, FL_N_ROW_CACHE);
    fl_aggregate_done(&s->unit);
    fl_partition_done(&s->layout);
    fleet_destroy(s->f);
    net_close_pool();
}

/* --- messages ------------------------------------------------------------- */

/* Of one section: keys, and for a step gradients that they make. */
static fl_packet *make(fl_msg_kind kind, fl_section_op op, const uint64_t *key,
                       int n)
{
    const fl_msg_head head = {.version = FL_MSG_VERSION, .kind = (uint8_t)kind};
    fl_msg_writer w;
    fl_section *section;
    float *values;
    void *keys;
    fl_packet *p;

    fl_msg_begin(&w, net_pool, &head);
    section = fl_msg_section(&w, op, 0);
    section->n_key = (uint32_t)n;
    section->n_batch = 1;
    if (key) {
        keys = fl_msg_column(&w, FL_COLUMN_KEYS, (size_t)n * sizeof *key);
        memcpy(keys, key, (size_t)n * sizeof *key);
    }
    if (kind == FL_MSG_STEP && op == FL_SECTION_ROWS) {
        values = fl_msg_column(&w, FL_COLUMN_VALUES,
                               (size_t)(n * DIM) * sizeof *values);
        for (int i = 0; i < n * DIM; i++)
            values[i] = (float)(key[i / DIM] % 7) - (float)(i % 5);
    }
    CHECK_OK(fl_msg_end(&w, false, &p));
    return p;
}

/* The rows that a pull gives. */
static void pull(scene *s, const uint64_t *key, int n, float *rows)
{
    fl_packet *p = make(FL_MSG_PULL, FL_SECTION_ROWS, key, n), *answer;
    const fl_msg_head head = {.version = FL_MSG_VERSION, .kind = FL_MSG_ANSWER};
    static fl_msg msg;
    fl_msg_writer w;

    CHECK_OK(fl_msg_decode(p, &msg));
    CHECK_OK(fl_aggregate_check(&s->unit, &msg));
    fl_msg_begin(&w, net_pool, &head);
    CHECK_OK(fl_aggregate_read(&s->unit, p, &msg, 0, &w, s->found));
    CHECK_OK(fl_msg_end(&w, false, &answer));
    CHECK_INT(answer->frame[2].size, (size_t)(n * DIM) * sizeof *rows);
    memcpy(rows, answer->frame[2].data, answer->frame[2].size);
    fl_packet_drop(answer);
    fl_packet_drop(p);
}

static fl_piece *add(scene *s, const uint64_t *key, int n, bool many)
{
    fl_packet *p = make(FL_MSG_STEP, FL_SECTION_ROWS, key, n);
    static fl_msg msg;
    fl_piece *piece;

    CHECK_OK(fl_msg_decode(p, &msg));
    CHECK_OK(fl_aggregate_check(&s->unit, &msg));
    CHECK_OK(fl_piece_create(&piece, net_pool, p, &msg));
    CHECK_OK(fl_aggregate_add(&s->unit, piece, many, s->found));
    fl_packet_drop(p);
    return piece;
}

/* How many rows need not be looked for. */
static int64_t apply(scene *s)
{
    const fl_aggregate_rows *t = &s->unit.table[0];
    int64_t found = 0;

    for (int64_t i = 0; i < t->n; i++)
        found += t->target[i] != NULL;
    const fl_update_settings settings = {.learning_rate = 0.5f};

    fl_aggregate_apply_dense(&s->unit, s->f->store->updates++, 1, 1, &settings);
    CHECK_OK(fl_aggregate_apply_rows(&s->unit));
    return found;
}

static int64_t push(scene *s, const uint64_t *key, int n)
{
    fl_piece *piece;
    int64_t found;

    fl_aggregate_begin(&s->unit);
    piece = add(s, key, n, false);
    found = apply(s);
    fl_piece_destroy(piece);
    return found;
}

/* Of two workers. */
static int64_t push_both(scene *s, const uint64_t *key, const uint64_t *other,
                         int n)
{
    fl_piece *one, *two;
    int64_t found;

    fl_aggregate_begin(&s->unit);
    one = add(s, key, n, true);
    two = add(s, other, n, true);
    found = apply(s);
    fl_piece_destroy(one);
    fl_piece_destroy(two);
    return found;
}

/* --- what was found ------------------------------------------------------- */

static const uint64_t a[N] = {11, 12, 13, 14, 15}, b[N] = {13, 16, 17, 12, 18};

/* Two steps twice, the second one pulled ahead of the first one's push, then
 * one of two workers, and what the rows are after it. */
static void train(bool remembers, int64_t found[5], float rows[2 * N * DIM])
{
    float unused[N * DIM];
    scene s;

    open_scene(&s, remembers);
    for (int i = 0; i < 4; i += 2) { /* at first nothing is there */
        pull(&s, a, N, unused);
        pull(&s, b, N, unused);
        found[i] = push(&s, a, N); /* makes two rows of b, too */
        found[i + 1] = push(&s, b, N);
    }
    found[4] = push_both(&s, a, b, N);
    pull(&s, a, N, rows);
    pull(&s, b, N, rows + N * DIM);
    close_scene(&s);
}

TEST(a_push_changes_the_rows_that_its_pull_has_found)
{
    float with[2 * N * DIM], without[2 * N * DIM];
    const int64_t want[5] = {0, 0, N, N, 2 * N - 2}, none[5] = {0};
    int64_t found[5];

    train(true, found, with);
    CHECK(memcmp(found, want, sizeof found) == 0);
    train(false, found, without);
    CHECK(memcmp(found, none, sizeof found) == 0);
    CHECK(memcmp(with, without, sizeof with) == 0);
}

TEST(a_push_of_other_keys_than_the_last_two_pulls_looks_for_its_rows)
{
    const uint64_t other[N] = {11, 12, 13, 15, 14};
    float unused[N * DIM];
    scene s;

    open_scene(&s, true);
    CHECK_INT(push(&s, a, N), 0);
    pull(&s, a, N, unused);
    CHECK_INT(push(&s, other, N), 0);
    CHECK_INT(push(&s, a, N - 1), 0);
    CHECK_INT(push(&s, a, N), N);
    pull(&s, b, N, unused);
    pull(&s, other, N, unused);
    CHECK_INT(push(&s, a, N), 0);
    fl_row_cache_forget(s.found, FL_N_ROW_CACHE);
    CHECK_INT(push(&s, other, N), 0);
    close_scene(&s);
}

/* --- unsound messages ----------------------------------------------------- */

static void check_refused(fl_packet *p, const char *words)
{
    static fl_msg msg;
    scene s;

    open_scene(&s, false);
    CHECK_OK(fl_msg_decode(p, &msg));
    CHECK_FAILS(fl_aggregate_check(&s.unit, &msg), FLEET_EINVAL, words);
    close_scene(&s);
}

TEST(a_section_that_says_it_has_keys_and_has_none_is_refused)
{
    fl_packet *p;

    net_open_pool();
    p = make(FL_MSG_PULL, FL_SECTION_ROWS, NULL, 3);
    check_refused(p, "3 keys that did not come");
    fl_packet_drop(p);
    net_open_pool();
    p = make(FL_MSG_PULL, FL_SECTION_DENSE, NULL, 2);
    check_refused(p, "2 keys that did not come");
    fl_packet_drop(p);
}

TEST(a_pull_of_a_clip_is_refused)
{
    fl_packet *p;

    net_open_pool();
    p = make(FL_MSG_PULL, FL_SECTION_CLIP, NULL, 0);
    check_refused(p, "section of kind 3 in a pull");
    fl_packet_drop(p);
}
