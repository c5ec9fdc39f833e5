/* ps_load_test.c - a load in the midst of an async pass: what a lane remembers
 * of its rows is of the table before it, and is used no more. */
#define SUITE ps_load
#include "lane_kit.h"
#include "ps_kit.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

/* --- a lane --------------------------------------------------------------- */

static void pull_rows(lane_kit *k, uint64_t key)
{
    fl_msg_head head = lane_head(FL_MSG_PULL, 0, 0, 0);
    fl_msg_writer w;

    lane_begin(k, &w, &head);
    fl_msg_section(&w, FL_SECTION_ROWS, 0)->n_key = 1;
    memcpy(fl_msg_column(&w, FL_COLUMN_KEYS, 8), &key, 8);
    lane_tell(k, &w, 0);
    lane_hear_status(k, 0, FL_ANSWER_OK);
}

static float *find_row(lane_kit *k, uint64_t key)
{
    fl_rows *rows = k->layout.table[0];
    float *row;

    CHECK_OK(rows->methods->find(rows, &key, 1, &row));
    return row;
}

/* The table has other rows than before, at other places. */
static void load_rows(lane_kit *k, uint64_t first, uint64_t second)
{
    fl_rows *rows = k->layout.table[0];
    float *row;

    rows->methods->clear(rows);
    CHECK_OK(rows->methods->make(rows, &first, 1, &row));
    CHECK_OK(rows->methods->make(rows, &second, 1, &row));
}

/* The pull of step 2 has found the row; then a load comes, and the push. */
TEST(a_push_after_a_load_changes_the_rows_that_were_loaded)
{
    enum { KEY = 5, OTHER = 6 };
    float before, other;
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, false);
    lane_push(&k, 0, 1, KEY, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    pull_rows(&k, KEY);
    lane_load(&k, 0, 2, "a path");
    CHECK_INT(k.command, FL_COMMAND_LOAD);
    load_rows(&k, OTHER, KEY);
    fl_lane_command_done(k.lane, FLEET_OK, "loaded", 0, 0, k.now_ms);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    before = *find_row(&k, KEY);
    other = *find_row(&k, OTHER);
    lane_push(&k, 0, 3, KEY, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK(*find_row(&k, KEY) != before);
    CHECK(*find_row(&k, OTHER) == other);
    lane_close(&k);
}

/* --- a job ---------------------------------------------------------------- */

enum { BATCHES = 16, BATCH = 4, LOADS_AFTER = 5 };

/* loss = mean of the rows: each row of a batch loses 0.5 / BATCH. */
static void open_means(ps_node *n, const fleet_options *o)
{
    fleet_initializer zero = {FLEET_INIT_CONSTANT, 0, 0};
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_dataset_options data = {.batch_size = BATCH, .n_use_var = 1};
    scene *c = &n->s;

    CHECK_OK(fleet_init(&c->f, o));
    c->p = fleet_program_create(c->f);
    c->m.label = fleet_data(c->p, "id", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    c->m.prediction = fleet_sparse_embedding(
        c->p, c->m.label, 1,
        &(fleet_sparse_embedding_options){.initializer = zero});
    s.a_sync = 1;
    CHECK_OK(fleet_minimize(
        fleet_distributed_optimizer(c->f, fleet_sgd(c->f, 0.5f), &s),
        fleet_mean(c->p, c->m.prediction)));
    data.use_var = &c->m.label;
    c->data = fleet_queue_dataset(c->f, &data);
    CHECK(c->data != NULL);
    CHECK_OK(fleet_dataset_set_filelist(c->data, n->job->file, 1));
}

/* Each id once, so that each batch has keys of its own. */
static const char *write_ids(void)
{
    char text[BATCHES * BATCH * 8], *at = text;

    for (int i = 0; i < BATCHES * BATCH; i++)
        at += sprintf(at, "1 %d\n", i);
    return test_file("ids.txt", text);
}

/* The rows of the next batch have been pulled. */
static int go_back(void *user, int64_t batch, int64_t samples)
{
    ps_node *n = user;

    (void)samples;
    if (batch == LOADS_AFTER)
        CHECK_OK(fleet_load_model(n->s.f, n->job->user));
    return 0;
}

/* How many rows have lost something once, and how many twice. */
static fleet_status count_losses(ps_node *n)
{
    enum { N = BATCHES * BATCH };
    static const int64_t dims[] = {N, 1};
    int64_t id[N];
    float row[N];
    fleet_feed feed = {"id", FLEET_INT64, id, dims, 2, NULL};
    fleet_fetch fetch = {
        .var = n->s.m.prediction, .data = row, .size = sizeof row};

    for (int i = 0; i < N; i++)
        id[i] = i;
    n->s.tester =
        fleet_executor_create(n->s.p, &(fleet_executor_options){.for_test = 1});
    FL_TRY(fleet_executor_run(n->s.tester, &feed, 1, &fetch, 1));
    for (int i = 0; i < N; i++) {
        n->number[0] += row[i] == -0.5f / BATCH;
        n->number[1] += row[i] == -1.0f / BATCH;
    }
    return FLEET_OK;
}

static fleet_status train_and_go_back(ps_node *n)
{
    fleet_train_options o = {.on_batch = go_back, .user = n};

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_save_persistables(n->s.f, n->job->user));
    FL_TRY(fleet_train_from_dataset(n->s.e, n->s.data, &o, NULL));
    FL_TRY(count_losses(n));
    return ps_end(n);
}

/* The pass before the save takes from each row once. The load undoes what the
 * next pass has taken until then; the batches after it take from their rows. */
TEST(a_load_in_the_midst_of_an_async_pass_undoes_what_came_before_it_alone)
{
    ps_job j = {.lanes = 2,
                .open = open_means,
                .file = {write_ids()},
                .work = train_and_go_back,
                .user = (void *)test_path("save")};
    const ps_node *n;

    ps_run(&j);
    ps_check(&j);
    n = ps_worker(&j, 0);
    CHECK_INT(n->number[0] + n->number[1], BATCHES * BATCH);
    CHECK_INT(n->number[0], LOADS_AFTER * BATCH);
}
