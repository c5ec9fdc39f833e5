/* stage_guards_test.c - guards say where operators run and where a program is
 * cut: they are shown, kept by copies, refused by name; cuts that cannot be are
 * refused with what is wrong; branches that were built in any order, values
 * that pass a stage, ragged data, merge groups and dropout are cut, too. */
#define SUITE stage_guards
#include "stages_kit.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/job/handle.h"

enum { ROWS = 21, STEPS = 4 };

static fleet_var *label_of(fleet_program *p)
{
    return fleet_data(p, "label", FLEET_INT64, (int64_t[]){-1, 1}, 2);
}

static fleet_var *embed(fleet_program *p, fleet_var *ids, const char *table)
{
    return fleet_sparse_embedding(
        p, ids, 4,
        &(fleet_sparse_embedding_options){
            .table = table, .initializer = {FLEET_INIT_UNIFORM, -0.5f, 0.5f}});
}

static fleet_var *layer(fleet_program *p, fleet_var *x, int64_t n,
                        const char *name)
{
    return fleet_fc(
        p, x, n, &(fleet_fc_options){.name = name, .activation = FLEET_RELU});
}

static fleet_var *loss_of(fleet_program *p, fleet_var *logits, fleet_var *label,
                          fleet_model *m)
{
    m->loss =
        fleet_mean(p, fleet_softmax_with_cross_entropy(p, logits, label, NULL));
    return m->loss;
}

/* --- what a guard says ---------------------------------------------------- */

static fleet_var *two_devices(fleet_program *p, const fleet_ctr_options *o,
                              fleet_model *m)
{
    fleet_var *x = kit_data(p, "x", 3), *c = fleet_data_ragged(p, "c");
    fleet_var *label = label_of(p), *h;

    (void)o;
    CHECK_OK(fleet_device_guard(p, "cpu"));
    h = fleet_concat(p, (fleet_var *[]){x, embed(p, c, "t")}, 2, 1);
    CHECK_OK(fleet_device_guard(p, "gpu"));
    h = layer(p, h, 6, "deep");
    CHECK_OK(fleet_device_guard(p, NULL));
    h = fleet_fc(p, h, 2, &(fleet_fc_options){.name = "out"});
    return loss_of(p, h, label, m);
}

static char *dump(fleet_program *p, fleet_dump how)
{
    char *text = fleet_program_dump(p, how, 100);

    CHECK(text != NULL);
    return text;
}

static void check_shown(fleet_program *p)
{
    char *text = dump(p, FLEET_DUMP_TEXT);

    CHECK_CONTAINS(text, "table t float32[0,4] device=cpu\n");
    CHECK_CONTAINS(text, "param deep.w float32[7,6] device=gpu\n");
    CHECK_CONTAINS(text, "param out.w float32[6,2]\n");
    CHECK_CONTAINS(text, " axis=1 device=cpu\n");
    CHECK_CONTAINS(text, "deep.w, deep.b)");
    CHECK_CONTAINS(text, "out.w, out.b)");
    fleet_free(text);
}

TEST(what_is_made_under_a_guard_shows_it_also_in_copies)
{
    stages_model how = {.build = two_devices};
    fleet_program *copy, *read;
    stages_whole w;
    char *json, *text;
    fleet *other;

    stages_whole_build(&w, &how);
    check_shown(w.p);
    copy = fleet_program_clone(w.p, 0);
    check_shown(copy);
    copy = fleet_program_prune(w.p, &w.m.loss, 1);
    check_shown(copy);
    json = dump(w.p, FLEET_DUMP_JSON);
    other = kit_handle(&(kit_options){0});
    read = fleet_program_from_json(other, json);
    check_shown(read);
    text = dump(read, FLEET_DUMP_JSON);
    CHECK_TEXT(text, json);
    fleet_free(text);
    fleet_free(json);
    fleet_destroy(other);
    stages_whole_close(&w);
}

TEST(a_word_that_is_no_device_is_refused_by_name)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = kit_data(p, "x", 3), *h = layer(p, x, 2, "one");
    static const char *const words[] = {"xpu", "gpu:", "gpu:x", "GPU", ""};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char want[80];

        snprintf(want, sizeof want, "device \"%s\": expected \"cpu\", \"gpu\"",
                 words[i]);
        CHECK_FAILS(fleet_device_guard(p, words[i]), FLEET_EINVAL, want);
        CHECK_FAILS(fleet_device_guard_from(p, fleet_var_name(h), words[i]),
                    FLEET_EINVAL, want);
    }
    CHECK_FAILS(fleet_device_guard_from(p, "absent", "cpu"), FLEET_ENOENT,
                "no variable \"absent\"");
    CHECK_FAILS(fleet_device_guard_from(p, "one.w", "cpu"), FLEET_EINVAL,
                "\"one.w\" is not computed");
    CHECK_FAILS(fleet_device_guard_from(p, NULL, "cpu"), FLEET_ENOENT,
                "(null)");
    CHECK(p->node[0]->place == 0);
    fleet_destroy(f);
}

TEST(a_guard_from_a_variable_on_takes_what_is_made_for_those_operators)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *h = layer(p, kit_data(p, "x", 3), 3, "one");
    fleet_fc_options shared = {.weight = {.name = "one.w"}, .name = "two"};

    h = fleet_fc(p, h, 3, &shared);
    CHECK_OK(fleet_device_guard_from(p, fleet_var_name(h), "gpu"));
    CHECK_INT(fleet_program_var(p, "one.w")->place, 0);
    CHECK_INT(fleet_program_var(p, "two.b")->place, FLEET_ANY_GPU);
    CHECK_INT(p->node[0]->place, 0);
    CHECK_INT(h->producer->place, FLEET_ANY_GPU);
    fleet_destroy(f);
}

TEST(the_stages_of_a_program_are_printed)
{
    stages_model how = {.build = two_devices};
    stages_whole w;
    char *text;

    stages_whole_build(&w, &how);
    text = dump(w.p, FLEET_DUMP_STAGES);
    CHECK_TEXT(text, "stage 0 on cpu: 2 operators\n"
                     "  table t\n"
                     "  -> label int64[-1,1]\n"
                     "  -> concat_0.tmp float32[-1,7], gradient back\n"
                     "  bytes of a batch of 100: 3600 forward, 2800 back\n"
                     "stage 1 on gpu: 4 operators, from fc_0.tmp (fc) on\n"
                     "  param deep.w\n"
                     "  param deep.b\n"
                     "  param out.w\n"
                     "  param out.b\n"
                     "loss mean_0.tmp\n");
    fleet_free(text);
    CHECK(!fleet_program_dump(w.p, FLEET_DUMP_STAGES, 0));
    CHECK_CONTAINS(fleet_last_error(), "stages need a batch, got 0");
    stages_whole_close(&w);
}

/* --- what is cut, too ----------------------------------------------------- */

/* The whole and its stages, side by side. */
static void check_same(const stages_model *how, int n_stage, bool in_order)
{
    stages_whole w;
    stages s = {0};
    fl_cut cut;

    stages_whole_build(&w, how);
    w.e = fleet_executor_create(w.p, NULL);
    CHECK_OK(fl_cut_make(&cut, w.p, w.m.loss, n_stage));
    CHECK_INT(cut.n_stage, n_stage);
    CHECK_INT(cut.in_order, in_order);
    stages_open(&s, &cut, how);
    for (int i = 0; i < STEPS; i++) {
        kit_batch *b = stages_batch(ROWS, i);
        float want, got = 0;

        kit_keep(b, w.p);
        want = kit_step(w.e, b, w.m.loss);
        CHECK_OK(stages_run(&s, b, &got));
        CHECK(memcmp(&want, &got, sizeof got) == 0);
        kit_batch_free(b);
    }
    stages_check_kept(&s, w.f);
    stages_close(&s);
    fl_cut_done(&cut);
    stages_whole_close(&w);
}

/* The deep branch is built before the wide one. */
static fleet_var *branches(fleet_program *p, const fleet_ctr_options *o,
                           fleet_model *m)
{
    fleet_var *x = kit_data(p, "x", 3), *c = fleet_data_ragged(p, "c");
    fleet_var *label = label_of(p), *deep, *wide;

    (void)o;
    deep = fleet_concat(p, (fleet_var *[]){x, embed(p, c, "t")}, 2, 1);
    CHECK_OK(fleet_device_guard(p, "gpu"));
    deep = fleet_fc(p, layer(p, deep, 6, "deep"), 2, NULL);
    CHECK_OK(fleet_device_guard(p, "cpu"));
    wide = fleet_fc(p, x, 2, &(fleet_fc_options){.name = "wide"});
    CHECK_OK(fleet_device_guard(p, "gpu"));
    return loss_of(p, fleet_add(p, deep, wide), label, m);
}

TEST(branches_that_were_built_in_another_order_are_two_stages)
{
    stages_model how = {.build = branches};

    check_same(&how, 2, false);
}

/* Three stages: what the first one makes is read by the second and the last;
 * the second one has a table, whose ids cross, the last one a batch_norm and a
 * metric. */
static fleet_var *passing(fleet_program *p, const fleet_ctr_options *o,
                          fleet_model *m)
{
    fleet_var *x = kit_data(p, "x", 3), *c = fleet_data_ragged(p, "c");
    fleet_var *label = label_of(p), *first, *h, *rows;

    (void)o;
    CHECK_OK(fleet_device_guard(p, "cpu"));
    first = fleet_dropout(p, layer(p, x, 5, "first"), 0.25f);
    CHECK_OK(fleet_device_guard(p, "gpu"));
    h = fleet_dropout(p, layer(p, first, 6, "second"), 0.5f);
    rows = embed(p, c, "t");
    CHECK_OK(fleet_device_guard(p, "cpu"));
    h = fleet_concat(p, (fleet_var *[]){h, first, rows}, 3, 1);
    h = fleet_batch_norm(p, h, NULL);
    h = fleet_fc(p, fleet_dropout(p, h, 0.5f), 2, NULL);
    fleet_auc(p, fleet_softmax(p, h), label, 0);
    return loss_of(p, h, label, m);
}

TEST(what_a_stage_does_not_read_passes_it_both_ways)
{
    stages_model how = {.build = passing};

    check_same(&how, 3, true);
}

/* What the loss compares with is computed, and trained by nothing: no gradient
 * goes to a label. */
static fleet_var *computed_label(fleet_program *p, const fleet_ctr_options *o,
                                 fleet_model *m)
{
    fleet_var *x = kit_data(p, "x", 3), *h = layer(p, x, 4, "one"), *y;

    (void)o;
    y = fleet_sigmoid(p, fleet_fc(p, x, 1, &(fleet_fc_options){.name = "y"}));
    CHECK_OK(fleet_device_guard(p, "gpu"));
    h = fleet_sigmoid(p, fleet_fc(p, h, 1, NULL));
    m->loss = fleet_mean(p, fleet_log_loss(p, h, y, 0));
    return m->loss;
}

TEST(a_label_that_is_computed_gets_no_gradient_back)
{
    stages_model how = {.build = computed_label};

    check_same(&how, 2, true);
}

/* A frozen parameter may be of several stages. */
static fleet_var *frozen_twice(fleet_program *p, const fleet_ctr_options *o,
                               fleet_model *m)
{
    fleet_fc_options same = {.name = "two",
                             .weight = {.name = "one.w", .frozen = 1}};
    fleet_var *x = kit_data(p, "x", 3), *h, *label = label_of(p);

    (void)o;
    h = fleet_fc(p, x, 3,
                 &(fleet_fc_options){.name = "one", .weight = {.frozen = 1}});
    CHECK_OK(fleet_device_guard(p, "gpu"));
    h = fleet_fc(p, h, 3, &same);
    return loss_of(p, fleet_fc(p, h, 2, NULL), label, m);
}

TEST(a_frozen_parameter_is_printed_in_each_stage_that_reads_it)
{
    stages_model how = {.build = frozen_twice};
    stages_whole w;
    char *text;

    stages_whole_build(&w, &how);
    text = dump(w.p, FLEET_DUMP_STAGES);
    CHECK_CONTAINS(text, "1 operator\n  param one.w frozen\n");
    CHECK_CONTAINS(text, "(fc) on\n  param one.w frozen\n  param two.b\n");
    fleet_free(text);
    stages_whole_close(&w);
}

TEST(stages_of_merge_groups_have_the_bits_of_the_whole)
{
    stages_model how = {.build = passing,
                        .how = {.merge = 2, .threads = 2, .l2_decay = 0.01f}};

    check_same(&how, 3, true);
}

TEST(a_gpu_with_its_number_and_without_it_is_one_stage)
{
    stages_model how = {.build = passing};
    stages_whole w;
    fl_cut cut;

    stages_whole_build(&w, &how);
    fleet_program_var(w.p, "sparse_embedding_0.tmp")->producer->place =
        FLEET_GPU(0);
    CHECK_OK(fl_cut_make(&cut, w.p, w.m.loss, 3));
    CHECK_INT(cut.n_stage, 3);
    fl_cut_done(&cut);
    fleet_program_var(w.p, "dropout_1.tmp")->producer->place = FLEET_GPU(0);
    CHECK_OK(fl_cut_make(&cut, w.p, w.m.loss, 3));
    CHECK_INT(cut.n_stage, 3);
    fl_cut_done(&cut);
    stages_whole_close(&w);
}

/* --- what cannot be cut --------------------------------------------------- */

typedef fleet_var *bad_builder(fleet_program *p, fleet_var *x,
                               fleet_var *label);

static void check_refused(bad_builder *build, int most, const char *words)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = kit_data(p, "x", 3), *loss = build(p, x, label_of(p));
    fl_cut cut;

    CHECK_OK(fleet_program_status(p));
    CHECK_FAILS(fl_cut_make(&cut, p, loss, most), FLEET_EUNSUPPORTED, words);
    fl_cut_done(&cut);
    fleet_destroy(f);
}

static fleet_var *back_to_the_cpu(fleet_program *p, fleet_var *x,
                                  fleet_var *label)
{
    fleet_model m;
    fleet_var *h = layer(p, x, 4, "one");

    CHECK_OK(fleet_device_guard(p, "gpu"));
    h = layer(p, h, 4, "two");
    CHECK_OK(fleet_device_guard(p, "cpu"));
    return loss_of(p, fleet_fc(p, h, 2, NULL), label, &m);
}

static fleet_var *nothing_on_the_cpu(fleet_program *p, fleet_var *x,
                                     fleet_var *label)
{
    fleet_model m;

    CHECK_OK(fleet_device_guard(p, "gpu"));
    return loss_of(p, fleet_fc(p, layer(p, x, 4, "one"), 2, NULL), label, &m);
}

static fleet_var *metric_behind_the_loss(fleet_program *p, fleet_var *x,
                                         fleet_var *label)
{
    fleet_model m;
    fleet_var *h = layer(p, x, 4, "one"), *loss;

    CHECK_OK(fleet_device_guard(p, "gpu"));
    h = fleet_fc(p, h, 2, NULL);
    loss = loss_of(p, h, label, &m);
    CHECK_OK(fleet_device_guard(p, "cpu"));
    fleet_auc(p, fleet_softmax(p, h), label, 0);
    return loss;
}

static fleet_var *shared_weights(fleet_program *p, fleet_var *x,
                                 fleet_var *label)
{
    fleet_fc_options same = {.name = "two", .weight = {.name = "one.w"}};
    fleet_model m;
    fleet_var *h = layer(p, x, 3, "one");

    CHECK_OK(fleet_device_guard(p, "gpu"));
    h = fleet_fc(p, h, 3, &same);
    return loss_of(p, fleet_fc(p, h, 2, NULL), label, &m);
}

static fleet_var *shared_table(fleet_program *p, fleet_var *x, fleet_var *label)
{
    fleet_var *ids = fleet_data_ragged(p, "c"), *e = embed(p, ids, "t");
    fleet_model m;

    e = fleet_concat(p, (fleet_var *[]){x, e}, 2, 1);
    CHECK_OK(fleet_device_guard(p, "gpu"));
    e = fleet_concat(p, (fleet_var *[]){e, embed(p, ids, "t")}, 2, 1);
    return loss_of(p, fleet_fc(p, e, 2, NULL), label, &m);
}

static fleet_var *folded(fleet_program *p, fleet_var *x, fleet_var *label)
{
    fleet_model m;
    fleet_var *h = fleet_fc(p, x, 6, NULL);

    h = fleet_reshape(p, h, (int64_t[]){-3, 2}, 2);
    CHECK_OK(fleet_device_guard(p, "gpu"));
    h = fleet_reshape(p, fleet_square(p, h), (int64_t[]){-1, 6}, 2);
    return loss_of(p, fleet_fc(p, h, 2, NULL), label, &m);
}

TEST(a_cut_that_cannot_be_is_refused_with_what_is_wrong)
{
    check_refused(back_to_the_cpu, 2,
                  "guarded for \"cpu\", and reads \"fc_1.tmp\" of stage 1 "
                  "(\"gpu\"): it would be stage 2, and there are 2");
    check_refused(nothing_on_the_cpu, 0,
                  "stage 0, which has the data and is on CPUs, has no operator:"
                  " \"fc_0.tmp\" is guarded for \"gpu\"");
    check_refused(metric_behind_the_loss, 0,
                  "the loss \"mean_0.tmp\" is in stage 1");
    check_refused(shared_weights, 0,
                  "the parameter \"one.w\" is read by \"fc_0.tmp\" in stage 0 "
                  "and by \"fc_1.tmp\" in stage 1");
    check_refused(
        shared_table, 0,
        "the table \"t\" is read by \"sparse_embedding_0.tmp\" in stage 0");
    check_refused(folded, 0, "\"reshape_0.tmp\" of stage 0");
}

TEST(a_program_that_is_not_trained_has_no_stages_to_print)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);

    layer(p, kit_data(p, "x", 3), 2, "one");
    CHECK(!fleet_program_dump(p, FLEET_DUMP_STAGES, 1));
    CHECK_CONTAINS(fleet_last_error(), "fleet_minimize() comes first");
    fleet_destroy(f);
}

TEST(cutting_survives_every_allocation_that_fails)
{
    stages_model how = {.build = passing};
    fleet_program *p = NULL;
    fl_stage_link link = {0};
    fleet_var *loss;
    stages_whole w;

    stages_whole_build(&w, &how);
    for (int64_t n = 1; !p; n++) {
        fleet_status status;
        fl_cut cut;

        fl_memory_fail_at(n, false);
        status = fl_cut_make(&cut, w.p, w.m.loss, 0);
        if (status == FLEET_OK)
            status = fl_stage_program(w.f, &cut, 1, &link, &p, &loss);
        fl_memory_fail_at(0, false);
        CHECK(status == FLEET_OK || status == FLEET_ENOMEM);
        CHECK(w.f->n_program == (size_t)(p ? 2 : 1));
        fl_cut_done(&cut);
    }
    stages_whole_close(&w);
}
