/* table_slots_test.c - what the rows of each slot have: in one process, and
 * added up over lanes. */
#define SUITE table_slots
#include "grown_kit.h"
#include "test.h"
#include "train_kit.h"

static const fleet_table_options counted = {
    .accessor = {.kind = FLEET_CTR_ACCESSOR, .click = "y"}};

/* A table with the slots a and b. */
typedef struct two {
    fleet *f;
    fleet_program *p;
    fleet_executor *e;
} two;

static fleet_var *mean_of(fleet_program *p, const char *name)
{
    fleet_var *ids = fleet_data(p, name, FLEET_INT64, (int64_t[]){-1, 1}, 2);

    return fleet_mean(
        p, fleet_sparse_embedding(
               p, ids, 2, &(fleet_sparse_embedding_options){.life = counted}));
}

static void open_two(two *t)
{
    fleet_var *a, *b;

    CHECK_OK(fleet_init(&t->f, NULL));
    t->p = fleet_program_create(t->f);
    CHECK(fleet_data(t->p, "y", FLEET_INT64, (int64_t[]){-1, 1}, 2));
    a = mean_of(t->p, "a");
    b = mean_of(t->p, "b");
    CHECK_OK(fleet_minimize(fleet_sgd(t->f, 0.1f), fleet_add(t->p, a, b)));
    t->e = fleet_executor_create(t->p, NULL);
    CHECK(t->e);
}

static void close_two(two *t)
{
    fleet_executor_destroy(t->e);
    fleet_destroy(t->f);
}

/* Three samples, of which the first one was clicked. */
static void train(const two *t, const int64_t *a, const int64_t *b)
{
    static const int64_t y[] = {1, 0, 0};
    const int64_t dims[] = {3, 1};
    const fleet_feed feed[] = {{"a", FLEET_INT64, a, dims, 2, NULL},
                               {"b", FLEET_INT64, b, dims, 2, NULL},
                               {"y", FLEET_INT64, y, dims, 2, NULL}};

    CHECK_OK(fleet_executor_run(t->e, feed, 3, NULL, 0));
}

static void check_slot(const fleet_slot_statistics *s, int slot, int64_t rows,
                       double shows, double clicks)
{
    CHECK_INT(s->slot, slot);
    CHECK_INT(s->rows, rows);
    CHECK_INT(s->hot_rows, rows);
    CHECK(s->shows == shows && s->clicks == clicks);
}

TEST(each_slot_has_its_rows_shows_and_clicks)
{
    static const int64_t a[] = {1, 1, 2}, b[] = {10, 11, 12}, c[] = {1, 1, 1};
    fleet_slot_statistics s[3];
    int n = 9;
    two t;

    open_two(&t);
    CHECK_OK(fleet_table_slot_stat(t.f, "embedding", s, 3, &n));
    CHECK_INT(n, 0);
    train(&t, a, b);
    CHECK_OK(fleet_table_slot_stat(t.f, "embedding", NULL, 0, &n));
    CHECK_INT(n, 2);
    CHECK_OK(fleet_table_slot_stat(t.f, "embedding", s, 3, &n));
    check_slot(&s[0], 0, 2, 3, 1);
    check_slot(&s[1], 1, 3, 3, 1);
    train(&t, c, b);
    CHECK_OK(fleet_table_slot_stat(t.f, "embedding", s, 1, &n));
    CHECK_INT(n, 2); /* of which there was room for one */
    check_slot(&s[0], 0, 2, 6, 2);
    close_two(&t);
}

TEST(rows_that_have_not_changed_lately_are_not_hot)
{
    static const int64_t a[] = {1, 1, 2}, b[] = {10, 11, 12}, c[] = {1, 1, 1};
    fleet_slot_statistics s[2];
    int n;
    two t;

    open_two(&t);
    train(&t, a, b);
    for (int i = 0; i < FLEET_HOT_UPDATES; i++)
        train(&t, c, b);
    CHECK_OK(fleet_table_slot_stat(t.f, "embedding", s, 2, &n));
    CHECK(s[0].rows == 2 && s[0].hot_rows == 1);
    CHECK(s[1].rows == 3 && s[1].hot_rows == 3);
    close_two(&t);
}

TEST(what_has_no_slots_says_so)
{
    const grown_how how = {.optimizer = "sgd"};
    int n;
    grown g;

    grown_open(&g, &how);
    CHECK_FAILS(fleet_table_slot_stat(g.f, "t", NULL, 0, &n), FLEET_EINVAL,
                "fleet_table_slot_stat: table \"t\" has no life.accessor: its "
                "rows know no slot");
    CHECK_FAILS(fleet_table_slot_stat(g.f, "u", NULL, 0, &n), FLEET_ENOENT,
                "there is no table \"u\"");
    CHECK_FAILS(fleet_table_slot_stat(g.f, "t", NULL, 2, &n), FLEET_EINVAL,
                "nowhere to put 2 of them");
    grown_close(&g);
}

/* --- over lanes ----------------------------------------------------------- */

static fleet_status ask_lanes(ps_node *n)
{
    fleet_slot_statistics slot = {0};
    fleet_table_statistics s;
    int found = 0;

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_barrier_worker(n->s.f));
    FL_TRY(fleet_table_stat(n->s.f, "t", &s));
    FL_TRY(fleet_table_slot_stat(n->s.f, "t", &slot, 1, &found));
    CHECK(found == 1 && slot.slot == 0);
    CHECK(s.parts == 4 && s.rows == 40);
    CHECK(slot.rows == 40 && slot.hot_rows == 40 && s.hot_rows == 40);
    CHECK(slot.shows == 40 && slot.clicks == 0);
    return ps_end(n);
}

TEST(lanes_add_up_what_they_have)
{
    grown_how how = {.optimizer = "sgd",
                     .life.accessor = {.kind = FLEET_CTR_ACCESSOR}};
    ps_job j = {.servers = 2,
                .workers = 2,
                .lanes = 2,
                .open = grown_open_node,
                .user = &how,
                .file = {grown_ids("a", 0, 40)},
                .work = ask_lanes};

    CHECK(ps_hash(&j) != 0);
}
