/* sampling_test.c - negative samples that are left out of training: which, that
 * the rows that stay are as they were, and calibrated predictions. */
#define SUITE sampling
#include "data_kit.h"
#include "test.h"

#include <fleet/fleet.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 3000, RATE = 4 }; /* a quarter of the negatives stays */

static const fleet_slot slots[] = {
    {.name = "id", .dtype = FLEET_INT64},
    {.name = "label"},
    {.name = "tags", .dtype = FLEET_INT64, .dim = -1, .weighted = 1},
    {.name = "pair", .dtype = FLEET_INT64, .dim = 2},
    {.name = "w"}};

enum { MOST = 2 };

/* What of a row is known by its number. */
static bool is_positive(int64_t id)
{
    return id % 10 == 3;
}

static const char *lines(const char *name, int first)
{
    char *text = malloc(ROWS * 80), *to = text;
    const char *path;

    for (int i = first; i < first + ROWS; i++) {
        to += sprintf(to, "1 %d 1 %d %d", i, is_positive(i), i % 3);
        for (int k = 0; k < i % 3; k++)
            to += sprintf(to, " %d:%d.5", i + k, i);
        to += sprintf(to, " 2 %d %d 1 %d\n", i + 1, i + 2, i % 6);
    }
    path = test_keep(test_file(name, text));
    free(text);
    return path;
}

static fl_stream_spec spec_of(const char *const *files, int n)
{
    fl_stream_spec spec =
        data_spec(FLEET_MULTISLOT, slots, DATA_N(slots), files, n);

    spec.batch_size = 64;
    spec.negative_rate = 1.0 / RATE;
    spec.negative_slot = 1;
    spec.draw_seed = 5;
    return spec;
}

/* Weights are 0 to 5, of as many samples each: those of 0 never come, those of
 * 1 in half of the cases. */
static fl_stream_spec spec_of_draws(const char *const *files, int n)
{
    fl_stream_spec spec = spec_of(files, n);

    spec.negative_rate = 0;
    spec.draw_slot = 4;
    spec.draw_most = MOST;
    return spec;
}

static void check_row(const fl_batch *b, int64_t row, int64_t id)
{
    const fl_slot_data *tags = &b->slot[2];
    const int64_t *pair = b->slot[3].values, *tag = tags->values;
    const int64_t begin = tags->offsets[row],
                  n = tags->offsets[row + 1] - begin;

    CHECK(((float *)b->slot[1].values)[row] == (float)is_positive(id));
    CHECK_INT(n, id % 3);
    for (int64_t k = 0; k < n; k++)
        CHECK(tag[begin + k] == id + k &&
              tags->weights[begin + k] == (float)id + 0.5f);
    CHECK(pair[2 * row] == id + 1 && pair[2 * row + 1] == id + 2);
    CHECK(((float *)b->slot[4].values)[row] == (float)(id % 6));
}

/* Which rows of a pass stay, by their ids; how many. */
static int keep(fl_stream_spec spec, int n_thread, char kept[2 * ROWS])
{
    fl_stream *s;
    fl_batch *b;
    fleet_status status;
    int n = 0;

    spec.n_thread = n_thread;
    CHECK_OK(fl_stream_open(&s, &spec));
    while ((status = fl_stream_next(s, &b)) == FLEET_OK) {
        CHECK(b->rows > 0 && b->rows <= spec.batch_size);
        for (int64_t row = 0; row < b->rows; row++, n++) {
            const int64_t id = ((int64_t *)b->slot[0].values)[row];

            check_row(b, row, id);
            CHECK(!kept[id]);
            kept[id] = 1;
        }
        fl_stream_release(s, b);
    }
    CHECK_STATUS(status, FLEET_EEND);
    fl_stream_close(s);
    return n;
}

TEST(all_positives_and_a_share_of_the_negatives_stay)
{
    const char *files[] = {lines("a", 0), lines("b", ROWS)};
    fl_stream_spec spec = spec_of(files, 2);
    char kept[2 * ROWS] = {0};
    const int n = keep(spec, 1, kept);

    for (int i = 0; i < 2 * ROWS; i++)
        CHECK(kept[i] || !is_positive(i));
    /* 600 positives; of 5,400 negatives 1,350, with a deviation of 32 */
    CHECK(abs(n - 1950) < 160);
    /* each file by itself */
    CHECK(memcmp(kept, kept + ROWS, ROWS) != 0);
}

TEST(threads_batches_shuffles_shares_and_caches_keep_the_same)
{
    const char *files[] = {lines("a", 0)};
    fl_stream_spec spec = spec_of(files, 1);
    fl_cache_state state = {false};
    char want[2 * ROWS] = {0};

    keep(spec, 1, want);
    for (int i = 0; i < 5; i++) {
        char got[2 * ROWS] = {0};
        fl_stream_spec other = spec;

        other.batch_size = i == 0 ? 1 : 500;
        other.shuffle = i == 1 ? 100 : 0;
        other.cache = i > 2 ? &state : NULL;
        other.share_count = i == 2 ? 2 : 1;
        keep(other, 1 + i % 3, got);
        other.share_index = 1;
        if (i == 2)
            keep(other, 2, got);
        CHECK(memcmp(got, want, sizeof got) == 0);
    }
    CHECK(!state.is_off);
    free(state.whole);
}

TEST(samples_are_drawn_by_their_weights)
{
    const char *files[] = {lines("a", 0)};
    fl_stream_spec spec = spec_of_draws(files, 1);
    char want[2 * ROWS] = {0}, both[2 * ROWS] = {0};
    int ones = 0;

    keep(spec, 1, want);
    for (int i = 0; i < ROWS; i++) {
        CHECK(i % 6 < 2 || want[i]);
        CHECK(i % 6 > 0 || !want[i]);
        ones += i % 6 == 1 && want[i];
    }
    CHECK(abs(ones - ROWS / 12) < 60); /* with a deviation of 11 */
    for (int i = 0; i < 2; i++) {
        char got[2 * ROWS] = {0};
        fl_stream_spec other = spec;

        other.batch_size = 500;
        other.share_count = 2;
        keep(other, 1 + i, got);
        other.share_index = 1;
        keep(other, 2, got);
        CHECK(memcmp(got, want, sizeof got) == 0);
    }
    spec.negative_rate = 1.0 / RATE; /* chances are multiplied */
    keep(spec, 1, both);
    ones = 0;
    for (int i = 0; i < ROWS; i++) {
        CHECK(!both[i] || want[i]);
        CHECK(both[i] || !want[i] || !is_positive(i));
        ones += both[i];
    }
    CHECK(ones > 600 && ones < 1100);
}

TEST(a_weight_below_0_is_named)
{
    const char *files[] = {
        test_file("a", "1 3 1 0 0 2 4 5 1 1\n1 4 1 0 0 2 5 6 1 -2\n")};
    fl_stream_spec spec = spec_of_draws(files, 1);
    fl_stream *s;
    fl_batch *b;

    CHECK_OK(fl_stream_open(&s, &spec));
    CHECK_FAILS(fl_stream_next(s, &b), FLEET_EFORMAT,
                ":2: slot \"w\": samples are drawn by it: expected 0 or more, "
                "got -2");
    fl_stream_close(s);
}

TEST(a_weight_below_0_is_a_bad_line)
{
    const char *files[] = {test_file("a", "1 3 1 0 0 2 4 5 1 5\n"
                                          "1 4 1 0 0 2 5 6 1 -2\n"
                                          "1 5 1 0 0 2 6 7 1 5\n")};
    fl_stream_spec spec = spec_of_draws(files, 1);
    data_dump d;

    spec.max_bad_lines = 1;
    d = data_read(&spec);
    CHECK_STATUS(d.status, FLEET_EEND);
    CHECK_INT(d.rows, 2);
}

/* Batches that have rows left are counted, no others. */
static void check_middle(fl_stream_spec spec)
{
    char all[2 * ROWS] = {0}, rest[2 * ROWS] = {0};
    int n;

    spec.batch_size = 2;
    n = keep(spec, 1, all);
    spec.first_batch = 100;
    CHECK(n - keep(spec, 2, rest) <= 200);
    CHECK(!rest[3] && !rest[203]);
    for (int i = ROWS / 2; i < ROWS; i++)
        CHECK(rest[i] == all[i]);
}

TEST(a_pass_goes_on_in_its_middle)
{
    const char *files[] = {lines("a", 0)};

    check_middle(spec_of(files, 1));
    check_middle(spec_of_draws(files, 1));
}

/* --- datasets ------------------------------------------------------------- */

typedef struct scene {
    fleet *f;
    fleet_model m;
    fleet_dataset *data;
    fleet_executor *e, *tester;
} scene;

static void open_scene(scene *s, double rate, const char *label)
{
    static const fleet_slot two[] = {{.name = "label"}, {.name = "x"}};
    const fleet_dataset_options o = {.batch_size = 50,
                                     .slots = two,
                                     .n_slot = 2,
                                     .negative_rate = rate,
                                     .negative_label = label};
    const fleet_options options = {.num_threads = 1,
                                   .log_level = FLEET_LOG_ERROR};
    char text[8 * ROWS], *to = text;
    fleet_program *p;
    fleet_var *x, *logit;

    for (int i = 0; i < 1000; i++)
        to += sprintf(to, "1 %d 1 1\n", i % 10 == 0);
    CHECK_OK(fleet_init(&s->f, &options));
    p = fleet_program_create(s->f);
    x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    s->m.label = fleet_data(p, "label", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    logit = fleet_fc(p, x, 1, NULL);
    s->m.loss =
        fleet_mean(p, fleet_sigmoid_cross_entropy(p, logit, s->m.label));
    s->m.prediction =
        fleet_calibrate(p, fleet_sigmoid(p, logit), rate > 0 ? (float)rate : 1);
    CHECK_OK(fleet_program_status(p));
    CHECK_OK(fleet_minimize(fleet_adam(s->f, 0.05f, NULL), s->m.loss));
    s->data = fleet_queue_dataset(s->f, &o);
    if (!s->data)
        return;
    CHECK_OK(fleet_dataset_set_filelist(
        s->data, (const char *[]){test_file("part", text)}, 1));
    s->e = fleet_executor_create(p, NULL);
    s->tester =
        fleet_executor_create(p, &(fleet_executor_options){.for_test = 1});
}

static void close_scene(scene *s)
{
    fleet_executor_destroy(s->e);
    fleet_executor_destroy(s->tester);
    fleet_destroy(s->f);
}

TEST(passes_draw_anew_and_evaluations_have_all)
{
    scene s = {0};
    fleet_train_result a, b;
    fleet_evaluation found;
    int differ = 0;

    open_scene(&s, 0.1, "label");
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, NULL, &a));
    CHECK(a.samples > 130 && a.samples < 260);
    for (int i = 0; i < 40; i++) {
        CHECK_OK(fleet_train_from_dataset(s.e, s.data, NULL, &b));
        CHECK(b.samples > 130 && b.samples < 260);
        differ += b.samples != a.samples;
    }
    CHECK(differ > 0);
    CHECK_OK(fleet_evaluate(s.tester, s.data, &s.m, &found));
    CHECK_INT(found.samples, 1000);
    /* a tenth are clicks: the entropy of that; the draws differ with the name
     * of the test's folder */
    CHECK(fabs(found.logloss + 0.1 * log(0.1) + 0.9 * log(0.9)) < 0.03);
    close_scene(&s);
}

static int stop_at_once(void *user, int64_t batch, int64_t samples)
{
    (void)user;
    (void)batch;
    (void)samples;
    fleet_train_stop();
    return 0;
}

/* What one of two positions alone has is named as what differs. */
TEST(a_pass_of_all_samples_does_not_go_on_with_draws)
{
    const fleet_train_options o = {.on_batch = stop_at_once};
    const char *saved = test_path("saved");
    scene s = {0};

    open_scene(&s, 0, NULL);
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, &o, NULL));
    CHECK_OK(fleet_save_persistables(s.f, saved));
    close_scene(&s);
    s = (scene){0};
    open_scene(&s, 0.5, "label");
    CHECK_OK(fleet_load_model(s.f, saved));
    CHECK_FAILS(fleet_train_from_dataset(s.e, s.data, NULL, NULL), FLEET_EINVAL,
                "negative_rate was not given and is 0.5. To begin");
    close_scene(&s);
}

TEST(what_cannot_be_drawn_by_is_refused)
{
    static const fleet_slot three[] = {
        {.name = "label"}, {.name = "x"}, {.name = "id", .dtype = FLEET_INT64}};
    static const struct {
        const char *slot;
        double most;
        const char *words;
    } bad[] = {{"none", 0, "draw_slot: \"none\" is no slot of float and dim 1"},
               {"id", 1, "draw_slot: \"id\" is no slot of float"},
               {NULL, 1, "draw_most: there is no draw_slot"},
               {"label", -1, "draw_most: expected a finite number above 0"}};

    for (int i = 0; i < 4; i++) {
        scene s = {0};
        fleet_dataset_options o = {.slots = three,
                                   .n_slot = 3,
                                   .draw_slot = bad[i].slot,
                                   .draw_most = bad[i].most};

        open_scene(&s, 0.5, "label");
        s.data = fleet_queue_dataset(s.f, &o);
        if (s.data) {
            CHECK_OK(fleet_dataset_set_filelist(
                s.data, (const char *[]){test_file("one", "1 1 1 1 1 1\n")},
                1));
            fleet_train_from_dataset(s.e, s.data, NULL, NULL);
        }
        CHECK_STATUS(fleet_last_status(), FLEET_EINVAL);
        CHECK_CONTAINS(fleet_last_error(), bad[i].words);
        o.draw_most = 1;
        o.draw_slot = "label";
        CHECK(!fleet_in_memory_dataset(s.f, &o));
        CHECK_CONTAINS(fleet_last_error(), "draw_slot: expected NULL");
        close_scene(&s);
    }
}

/* --- by a configuration --------------------------------------------------- */

/* The closing line's hash, of lines of which each third one is left out in the
 * file, or has weight 0. */
static void train_lines(bool weights, char hash[17])
{
    char *text = malloc(100 * 60), config[1000], *line, *to = text;
    const char *at;

    for (int i = 0; i < 100; i++) {
        if (!weights && i % 3 == 0)
            continue;
        to += sprintf(to, "1 %d 1 %d 1 %d", (i * 7) % 5 < 2, i % 10, i % 4);
        to += sprintf(to, weights ? " 1 %d\n" : "\n", i % 3 ? 5 : 0);
    }
    snprintf(config, sizeof config,
             "{\"model\": {\"type\": \"fm\"}, \"dataset\": {\"format\": "
             "\"multislot\", \"train\": [\"%s\"]%s}, \"slots\": [{\"name\": "
             "\"y\", \"type\": \"float\", \"role\": \"label\"}, {\"name\": "
             "\"u\", \"type\": \"uint64\"}, {\"name\": \"x\", \"type\": "
             "\"float\"}%s]}",
             test_file(weights ? "all" : "some", text),
             weights ? ", \"draw_most\": 4" : "",
             weights ? ", {\"name\": \"w\", \"type\": \"float\", \"role\": "
                       "\"draw\"}"
                     : "");
    CHECK_OK(fleet_train_from_config(test_file("c.json", config), NULL, &line));
    at = strstr(line, "\"params_hash\":\"");
    CHECK(at != NULL);
    snprintf(hash, 17, "%s", at + strlen("\"params_hash\":\""));
    fleet_free(line);
    free(text);
}

/* In batches of one sample each. */
TEST(samples_of_weight_0_are_as_if_they_were_not_there)
{
    char drawn[17], left_out[17];

    train_lines(true, drawn);
    train_lines(false, left_out);
    CHECK_TEXT(drawn, left_out);
}

TEST(calibrations_of_two_classes_and_what_is_refused)
{
    scene s = {0};
    fleet_program *p;
    fleet_var *x, *q;
    float in[] = {0.5f, 0.5f, 0, 1, 0.9f, 0.1f}, got[6];
    const float want[] = {1 / 1.2f, 0.2f / 1.2f,  0,
                          1,        0.9f / 0.92f, 0.02f / 0.92f};
    const fleet_feed feed = {"p", FLEET_FLOAT32, in, (int64_t[]){3, 2},
                             2,   NULL};
    fleet_executor *e;

    open_scene(&s, 0.2, "none");
    CHECK_FAILS(fleet_train_from_dataset(s.e, s.data, NULL, NULL), FLEET_EINVAL,
                "negative_label: \"none\" is no slot of dim 1");
    p = fleet_program_create(s.f);
    x = fleet_data(p, "p", FLEET_FLOAT32, (int64_t[]){-1, 2}, 2);
    q = fleet_calibrate(p, x, 0.2f);
    e = fleet_executor_create(p, &(fleet_executor_options){.for_test = 1});
    CHECK_OK(fleet_executor_run(
        e, &feed, 1, &(fleet_fetch){.var = q, .data = got, .size = sizeof got},
        1));
    CHECK_CLOSE(got, want, 6, 1e-6);
    fleet_executor_destroy(e);
    p = fleet_program_create(s.f);
    x = fleet_data(p, "p", FLEET_FLOAT32, (int64_t[]){-1, 3}, 2);
    CHECK(fleet_calibrate(p, x, 0.2f) == NULL);
    CHECK_FAILS(fleet_program_status(p), FLEET_ESHAPE, "\"p\" is none");
    p = fleet_program_create(s.f);
    x = fleet_data(p, "p", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    CHECK(fleet_calibrate(p, x, 0) == NULL);
    CHECK_FAILS(fleet_program_status(p), FLEET_EINVAL, "a rate above 0");
    close_scene(&s);
    s = (scene){0};
    open_scene(&s, 1, "label");
    CHECK_STATUS(fleet_last_status(), FLEET_EINVAL);
    CHECK_CONTAINS(fleet_last_error(), "above 0 and below 1");
    close_scene(&s);
    s = (scene){0};
    open_scene(&s, 0, "label");
    CHECK_STATUS(fleet_last_status(), FLEET_EINVAL);
    CHECK_CONTAINS(fleet_last_error(),
                   "negative_label: there is no negative_rate");
    close_scene(&s);
}
