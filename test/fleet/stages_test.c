/* stages_test.c - a program that is cut where its guards change the device, and
 * run stage by stage, computes what it computes in one piece, to the bit:
 * values, loss, gradients, and what is trained; also where several batches are
 * in flight between the stages. */
#define SUITE stages
#include "gpu_kit.h"
#include "stages_kit.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"
#include "runtime/exec/compile.h"
#include "runtime/exec/crew.h"

enum { ROWS = 21, STEPS = 3, MOST_VARS = 200 };

/* All that the whole program computes: values and gradients of all results, by
 * step. */
typedef struct record {
    stages_whole w;
    int n;
    struct {
        const char *name;
        float *value[STEPS], *gradient[STEPS]; /* NULL: there is none */
    } var[MOST_VARS];
    float loss[STEPS];
    const fl_cut *cut; /* that stages are of now */
    int step;          /* that they do */
    int compared[2];   /* values, gradients, so far */
    int deep;          /* cuts into three stages */
} record;

static bool is_recorded(const fleet_var *v)
{
    return v->kind == FL_VAR_TEMP && v->dtype == FLEET_FLOAT32;
}

/* fetch has a place for each variable. */
static int fetch_all(record *r, fleet_fetch *fetch)
{
    for (size_t i = 0; i < r->w.p->n_var; i++) {
        const fleet_var *v = r->w.p->var[i];
        size_t size = (size_t)fl_shape_count(&v->shape, ROWS) * sizeof(float);
        int at = r->n;

        if (!is_recorded(v))
            continue;
        CHECK(r->n < MOST_VARS);
        r->var[at].name = v->name;
        for (int s = 0; s < STEPS; s++) {
            r->var[at].value[s] = malloc(size);
            r->var[at].gradient[s] = malloc(size);
        }
        fetch[r->n++] = (fleet_fetch){.var = v, .size = size};
    }
    return r->n;
}

static void read_gradients(record *r, const fleet_fetch *fetch, int step)
{
    for (int i = 0; i < r->n; i++) {
        const fleet_var *v = fetch[i].var;

        if (r->w.e->last->plan->gradient_of[v->id] >= 0 && v != r->w.m.loss)
            CHECK_OK(fl_stage_gradient(r->w.e, v, r->var[i].gradient[step],
                                       fl_shape_count(&v->shape, ROWS)));
        else {
            free(r->var[i].gradient[step]);
            r->var[i].gradient[step] = NULL;
        }
    }
}

static void record_whole(record *r, const stages_model *how)
{
    static fleet_fetch fetch[MOST_VARS];
    fleet_feed feed[KIT_MOST_FEEDS];

    memset(r, 0, sizeof *r);
    stages_whole_build(&r->w, how);
    for (size_t i = 0; i < r->w.p->n_var; i++)
        if (is_recorded(r->w.p->var[i]))
            r->w.p->var[i]->keep_gradient = true;
    r->w.e = fleet_executor_create(r->w.p, NULL);
    fetch_all(r, fetch);
    for (int s = 0; s < STEPS; s++) {
        kit_batch *b = stages_batch(ROWS, s);

        for (int i = 0; i < r->n; i++) {
            fetch[i].data = r->var[i].value[s];
            if (fetch[i].var == r->w.m.loss)
                fetch[i].data = &r->loss[s];
        }
        CHECK_OK(
            fleet_executor_run(r->w.e, feed, kit_feeds(b, feed), fetch, r->n));
        read_gradients(r, fetch, s);
        kit_batch_free(b);
    }
}

static void free_record(record *r)
{
    for (int i = 0; i < r->n; i++)
        for (int s = 0; s < STEPS; s++) {
            free(r->var[i].value[s]);
            free(r->var[i].gradient[s]);
        }
    stages_whole_close(&r->w);
}

static int find_recorded(const record *r, const char *name)
{
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->var[i].name, name) == 0)
            return i;
    return -1;
}

static void check_rows(const fl_stage_value *v, const float *want)
{
    const float *got = v->data;

    for (int64_t i = 0; i < v->rows; i++)
        CHECK(memcmp(got + i * v->ld, want + i * v->cols,
                     (size_t)v->cols * sizeof *got) == 0);
}

/* Has the whole program, after its iteration, what crosses the boundary? Not
 * where a stage before it adds to the gradient, too; nor where the producer has
 * made its own input's gradient of it, in place. */
static bool is_comparable(const fl_cut *cut, const fleet_var *v, int boundary)
{
    const fleet_program *p = cut->program;
    const fleet_var *same = fleet_program_var(p, v->name);

    for (size_t i = 0; i < p->n_node; i++)
        for (int j = 0; j < p->node[i]->n_in; j++)
            if (cut->stage_of[i] >= 0 && cut->stage_of[i] <= boundary &&
                p->node[i]->in[j] == same)
                return false;
    return strcmp(same->producer->op->name, "fc") != 0 &&
           strcmp(same->producer->op->name, "reshape") != 0;
}

/* What crosses is what the whole program has. */
static void compare(void *arg, int boundary, const fl_stage_batch *b)
{
    record *r = arg;

    for (int i = 0; i < b->n_value; i++) {
        int at = find_recorded(r, b->value[i].var->name);

        if (at < 0) /* data */
            continue;
        check_rows(&b->value[i], r->var[at].value[r->step]);
        r->compared[0]++;
    }
    for (int i = 0; i < b->n_gradient; i++) {
        int at = find_recorded(r, b->gradient[i].var->name);

        CHECK(at >= 0 && r->var[at].gradient[r->step]);
        if (!is_comparable(r->cut, b->gradient[i].var, boundary))
            continue;
        check_rows(&b->gradient[i], r->var[at].gradient[r->step]);
        r->compared[1]++;
    }
}

/* Stages of the program, which has its guards, beside the record. */
static void check_stages(record *r, const fl_cut *cut, const stages_model *how)
{
    stages s = {.watch = compare, .arg = r};

    r->cut = cut;
    stages_open(&s, cut, how);
    for (r->step = 0; r->step < STEPS; r->step++) {
        kit_batch *b = stages_batch(ROWS, r->step);
        float loss = 0;

        CHECK_OK(stages_run(&s, b, &loss));
        CHECK(memcmp(&loss, &r->loss[r->step], sizeof loss) == 0);
        kit_batch_free(b);
    }
    stages_check_kept(&s, r->w.f);
    stages_close(&s);
}

/* Guards from one node on, and from another one on; `second` 0: none. */
static void guard(fleet_program *p, size_t first, size_t second)
{
    CHECK_OK(fleet_device_guard_from(p, p->node[0]->out[0]->name, "cpu"));
    CHECK_OK(fleet_device_guard_from(p, p->node[first]->out[0]->name, "gpu"));
    if (second > 0)
        CHECK_OK(
            fleet_device_guard_from(p, p->node[second]->out[0]->name, "cpu"));
}

/* Every cut between two nodes, and with a third stage `width` nodes later (0:
 * without): all are compared, or refused with the name of what is shared. */
static int sweep(record *r, const stages_model *how, size_t width)
{
    stages_whole w;
    int legal = 0;

    stages_whole_build(&w, how);
    for (size_t i = 1; i + width < w.p->n_node; i++) {
        fleet_status status;
        fl_cut cut;

        guard(w.p, i, width > 0 ? i + width : 0);
        status = fl_cut_make(&cut, w.p, w.m.loss, 0);
        if (status == FLEET_OK) {
            check_stages(r, &cut, how);
            legal += cut.n_stage > 1;
            r->deep += cut.n_stage > 2;
        } else {
            CHECK_INT(status, FLEET_EUNSUPPORTED);
            CHECK(strstr(fleet_last_error(), "one stage has to have it") ||
                  strstr(fleet_last_error(), "has to be in the last stage"));
        }
        fl_cut_done(&cut);
    }
    stages_whole_close(&w);
    return legal;
}

static void check_model(stages_builder *build, int two, int three)
{
    static record r;
    stages_model how = stages_model_of(build);
    int legal[2];

    record_whole(&r, &how);
    legal[0] = sweep(&r, &how, 0);
    legal[1] = sweep(&r, &how, 4);
    CHECK(r.compared[0] > 0 && r.compared[1] > 0);
    free_record(&r);
    CHECK_INT(legal[0], two);
    CHECK_INT(legal[1], three);
}

TEST(every_cut_of_wide_deep_has_the_bits_of_the_whole)
{
    check_model(fleet_wide_deep, 9, 5);
}

/* The second cut at each distance from the first. */
TEST(every_cut_of_wide_deep_into_three_has_the_bits_of_the_whole)
{
    static record r;
    stages_model how = stages_model_of(fleet_wide_deep);

    record_whole(&r, &how);
    for (size_t width = 1; width < r.w.p->n_node; width++)
        (void)sweep(&r, &how, width);
    free_record(&r);
    CHECK_INT(r.deep, 37);
}

TEST(every_cut_of_deepfm_has_the_bits_of_the_whole)
{
    check_model(fleet_deepfm, 26, 20);
}

TEST(every_cut_of_dcn_v2_has_the_bits_of_the_whole)
{
    check_model(fleet_dcn_v2, 16, 12);
}

/* --- batches in flight ---------------------------------------------------- */

enum { FLIGHT = 3, ROUNDS = 2 };

static void bind(const stages_one *first, const kit_batch *b, fl_input *input)
{
    fleet_feed feed[KIT_MOST_FEEDS];
    int n = kit_feeds(b, feed);

    for (int i = 0; i < n; i++) {
        const fleet_var *v = fleet_program_var(first->p, feed[i].name);

        if (v)
            input[v->id] = (fl_input){feed[i].data, feed[i].offsets};
    }
}

/* The kit's link wants all of them to be sent before one is waited for. */
static void train_in_flight(stages *s)
{
    const fl_crew_kind kind = {.n = FLIGHT, .in_flight = true};
    fl_crew *crew;

    s->one[0].p->training.merge.steps = 1;
    CHECK_OK(fl_crew_of(s->one[0].e, &kind, "a test", &crew));
    for (int round = 0; round < ROUNDS; round++) {
        int64_t rows[FLIGHT];
        kit_batch *b[FLIGHT];

        for (int i = 0; i < FLIGHT; i++) {
            rows[i] = ROWS - i;
            b[i] = stages_batch(rows[i], FLIGHT * round + i);
            bind(&s->one[0], b[i], fl_crew_input(crew, i));
        }
        CHECK_OK(fl_crew_round(crew, rows, FLIGHT));
        for (int i = 0; i < FLIGHT; i++)
            kit_batch_free(b[i]);
    }
    fl_crew_rest(crew);
}

TEST(batches_in_flight_have_the_bits_of_a_merge_group)
{
    stages_model how = stages_model_of(fleet_wide_deep);
    stages_whole w;
    fl_cut cut;
    stages s = {.n = 0};

    how.how.merge = FLIGHT;
    how.how.max_batch = ROWS;
    stages_whole_build(&w, &how);
    CHECK_OK(fleet_device_guard_from(w.p, w.p->node[0]->out[0]->name, "cpu"));
    CHECK_OK(fleet_device_guard_from(w.p, "fc_0.tmp", "gpu"));
    CHECK_OK(fl_cut_make(&cut, w.p, w.m.loss, 0));
    CHECK_INT(cut.n_stage, 2);
    stages_open(&s, &cut, &how);
    w.e = fleet_executor_create(w.p,
                                &(fleet_executor_options){.max_batch = ROWS});
    s.one[0].e->max_batch = s.one[1].e->max_batch = ROWS;
    train_in_flight(&s);
    for (int i = 0; i < FLIGHT * ROUNDS; i++) {
        kit_batch *b = stages_batch(ROWS - i % FLIGHT, i);
        fleet_feed feed[KIT_MOST_FEEDS];

        CHECK_OK(fleet_executor_run(w.e, feed, kit_feeds(b, feed), NULL, 0));
        kit_batch_free(b);
    }
    stages_check_kept(&s, w.f);
    stages_close(&s);
    fl_cut_done(&cut);
    stages_whole_close(&w);
}

/* --- a GPU between two CPUs ----------------------------------------------- */

/* What crosses goes by the host's memory. */
TEST(a_stage_between_two_may_be_on_a_gpu)
{
    stages_model how = stages_model_of(fleet_wide_deep);
    stages_whole w, placed;
    fl_cut cut;
    stages s = {.n = 0};

    gpu_kit_open();
    stages_whole_build(&w, &how);
    stages_whole_build(&placed, &how);
    CHECK_OK(fleet_program_place(placed.p, FLEET_GPU(0), NULL));
    CHECK_OK(fleet_device_guard_from(placed.p, placed.p->node[0]->out[0]->name,
                                     "cpu"));
    CHECK_OK(fleet_device_guard_from(placed.p, "fc_0.tmp", "gpu"));
    CHECK_OK(fleet_device_guard_from(placed.p, "fc_1.tmp", "cpu"));
    CHECK_OK(fl_cut_make(&cut, placed.p, placed.m.loss, 0));
    CHECK_INT(cut.n_stage, 3);
    stages_open(&s, &cut, &how);
    w.e = fleet_executor_create(w.p, NULL);
    for (int i = 0; i < STEPS; i++) {
        kit_batch *b = stages_batch(ROWS, i);
        fleet_feed feed[KIT_MOST_FEEDS];
        float loss[2];
        fleet_fetch fetch = {.var = w.m.loss, .data = loss, .size = 4};

        CHECK_OK(fleet_executor_run(w.e, feed, kit_feeds(b, feed), &fetch, 1));
        CHECK_OK(stages_run(&s, b, &loss[1]));
        CHECK_CLOSE(&loss[1], loss, 1, 1e-5f);
        kit_batch_free(b);
    }
    stages_close(&s);
    fl_cut_done(&cut);
    stages_whole_close(&placed);
    stages_whole_close(&w);
    gpu_kit_close();
}
