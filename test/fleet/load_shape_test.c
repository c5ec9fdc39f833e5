/* load_shape_test.c - a save of a model whose first layer was smaller. */
#define SUITE load_shape
#include <fleet/fleet.h>

#include "test.h"
#include "train_kit.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/config/config.h"
#include "fleet/save/load_how.h"

enum { MOST = 3, OUT = 2 };

typedef struct tower {
    fleet *f;
    fleet_executor *e;
    fleet_var *x, *out;
    int64_t width;
} tower;

static char log_text[4000];

static void keep_line(void *user, fleet_log_level level, const char *line)
{
    size_t n = strlen(log_text);

    (void)user;
    (void)level;
    snprintf(log_text + n, sizeof log_text - n, "%s\n", line);
}

static void open_tower(tower *t, int64_t width)
{
    fleet_program *p;
    fleet_var *h;

    *t = (tower){.width = width};
    log_text[0] = 0;
    CHECK_OK(fleet_init(&t->f, &(fleet_options){.num_threads = 1,
                                                .seed = 5,
                                                .log = keep_line,
                                                .log_level = FLEET_LOG_INFO}));
    p = fleet_program_create(t->f);
    h = t->x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, width}, 2);
    h = fleet_fc(p, h, OUT, &(fleet_fc_options){.name = "first"});
    h = t->out = fleet_fc(p, h, 1, &(fleet_fc_options){.name = "last"});
    CHECK_OK(fleet_minimize(kit_rule(t->f, "adam", 0.1f), fleet_mean(p, h)));
    t->e = fleet_executor_create(p, NULL);
    CHECK(t->e != NULL);
}

static void close_tower(tower *t)
{
    fleet_executor_destroy(t->e);
    fleet_destroy(t->f);
}

static void train(tower *t)
{
    const float x[MOST] = {1, 2, 3};
    const int64_t dims[] = {1, t->width};
    const fleet_feed feed = {"x", FLEET_FLOAT32, x, dims, 2, NULL};

    CHECK_OK(fleet_executor_run(t->e, &feed, 1, NULL, 0));
}

typedef struct weights {
    float first[MOST * OUT], last[OUT];
} weights;

static weights weights_of(const tower *t)
{
    weights w = {0};

    CHECK_OK(fleet_parameter_get(t->f, "first.w", w.first, t->width * OUT));
    CHECK_OK(fleet_parameter_get(t->f, "last.w", w.last, OUT));
    return w;
}

TEST(a_layer_that_has_grown_begins_anew_where_that_is_asked_for)
{
    const fleet_load_options anew = {.on_shape = FLEET_SHAPE_INITIALIZE};
    const char *path = test_path("saved");
    weights saved, fresh, now;
    tower small, large;

    open_tower(&small, 2);
    train(&small);
    saved = weights_of(&small);
    CHECK_OK(fleet_save_persistables(small.f, path));
    close_tower(&small);
    open_tower(&large, 3);
    fresh = weights_of(&large);
    train(&large);
    now = weights_of(&large);
    CHECK(memcmp(now.first, fresh.first, sizeof now.first) != 0);
    CHECK_FAILS(fleet_load_model(large.f, path), FLEET_ESHAPE,
                "\"first.w\" has shape [3,2], but [2,2] in ");
    CHECK_CONTAINS(fleet_last_error(),
                   "on_shape \"initialize\" has it begin anew");
    CHECK(memcmp(weights_of(&large).last, now.last, sizeof now.last) == 0);
    CHECK_OK(fleet_load_model_with(large.f, path, &anew));
    now = weights_of(&large);
    CHECK(memcmp(now.first, fresh.first, sizeof now.first) == 0);
    CHECK(memcmp(now.last, saved.last, sizeof now.last) == 0);
    CHECK_CONTAINS(log_text,
                   "load: \"first.w\" has shape [3,2], but [2,2] in ");
    CHECK_CONTAINS(log_text, ": it is initialized");
    train(&large);
    CHECK(memcmp(weights_of(&large).first, now.first, sizeof now.first) != 0);
    CHECK_FAILS(fleet_load_model_with(
                    large.f, path,
                    &(fleet_load_options){.on_shape = (fleet_on_shape)2}),
                FLEET_EINVAL, "load: on_shape: expected one of its choices");
    close_tower(&large);
}

/* As servers are told, and as a configuration says it. */
TEST(servers_and_configurations_know_of_it)
{
    static const char text[] =
        "{\"model\": {\"type\": \"wide_deep\", \"hidden\": [8]}, \"dataset\": "
        "{\"format\": \"multislot\", \"train\": [\"part-0\"], \"batch_size\": "
        "4}, \"slots\": [{\"name\": \"y\", \"type\": \"float\", \"role\": "
        "\"label\"}, {\"name\": \"u\", \"type\": \"uint64\"}], \"load\": "
        "{\"path\": \"here\", \"on_shape\": \"initialize\"}}";
    const fl_load_how how = {.o.on_shape = FLEET_SHAPE_INITIALIZE};
    fl_load_how told = {0};
    const char *path = NULL;
    fl_json *json = NULL;
    fl_config c;
    char *print;

    CHECK_OK(fl_load_how_print(&how, "there", &print));
    CHECK_OK(fl_json_parse(print, strlen(print), "load", &json));
    CHECK_OK(fl_load_how_read(json, &told, &path));
    CHECK_INT(told.o.on_shape, FLEET_SHAPE_INITIALIZE);
    fl_json_free(json);
    fl_free(print);
    CHECK_OK(fl_config_read(&c, text, strlen(text), "f.json"));
    CHECK_INT(c.load_options.on_shape, FLEET_SHAPE_INITIALIZE);
    fl_config_done(&c);
}

/* Rows that stay do so beside those of a checkpoint, or of a delta. */
TEST(what_has_no_states_is_not_loaded_beside_rows_that_stay)
{
    const fleet_load_options more = {.keep_rows = 1};
    tower t;

    open_tower(&t, 2);
    CHECK_OK(fleet_save_persistables(t.f, test_path("all")));
    CHECK_OK(fleet_load_model_with(t.f, test_path("all"), &more));
    CHECK_OK(fleet_save_inference_model(t.f, test_path("scores"), &t.x, 1,
                                        &t.out, 1));
    CHECK_FAILS(fleet_load_model_with(t.f, test_path("scores"), &more),
                FLEET_EINVAL,
                "what was saved is \"inference\", not \"delta\" or "
                "\"checkpoint\"");
    close_tower(&t);
}

/* What is no checkpoint is told how it is loaded. */
TEST(a_delta_and_hot_rows_say_how_they_are_loaded)
{
    const char *path = test_path("delta");
    tower t;

    open_tower(&t, 2);
    CHECK_OK(fleet_save_persistables_with(
        t.f, path, &(fleet_save_options){.mode = FLEET_SAVE_DELTA}));
    CHECK_FAILS(fleet_load_model(t.f, path), FLEET_EINVAL,
                "what was saved is \"delta\", not \"checkpoint\": a delta is "
                "loaded with keep_rows, into what its base has left");
    CHECK(!fleet_load_inference_model(path));
    CHECK_CONTAINS(fleet_last_error(),
                   "what was saved is \"delta\"; expected \"inference\", by "
                   "fleet_save_inference_model()");
    close_tower(&t);
}
