/* null_calls_test.c - no function of the public headers minds a NULL: each is
 * called with NULL for each of its pointers, by what test/null-calls makes of
 * the headers, in a process of its own. */
#define SUITE null_calls
#include "model_kit.h"
#include "test.h"

#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "ops/custom/custom.h"

/* --- samples -------------------------------------------------------------- */

enum { MANY = 4 }; /* more than any call is told of */

/* Made before any call, for the processes that make one each. */
static const char *folder, *model_path, *data_path;

static fleet *handle;
static fleet_program *building; /* not trained; its variables are samples */

static void *sample_fleet_1(void)
{
    const fleet_options o = {.num_threads = 1, .log_level = FLEET_LOG_SILENT};

    if (!handle)
        CHECK_OK(fleet_init(&handle, &o));
    return handle;
}

static void *sample_fleet_program_1(void)
{
    if (!building)
        building = fleet_program_create(sample_fleet_1());
    return building;
}

static void *sample_fleet_var_1(void)
{
    static fleet_var *var;

    if (!var)
        var = fleet_data(sample_fleet_program_1(), "sample", FLEET_FLOAT32,
                         (int64_t[]){-1, 3}, 2);
    return var;
}

static void *sample_fleet_var_2(void)
{
    static fleet_var *list[MANY];

    for (int i = 0; i < MANY; i++)
        list[i] = sample_fleet_var_1();
    return list;
}

static fleet_var *train_something(fleet_program *p)
{
    fleet_var *x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 2}, 2);
    fleet_var *y = fleet_mean(p, fleet_fc(p, x, 1, NULL));

    CHECK_OK(fleet_minimize(fleet_sgd(sample_fleet_1(), 0.1f), y));
    return y;
}

static void *sample_fleet_executor_1(void)
{
    static fleet_executor *e;

    if (!e) {
        fleet_program *p = fleet_program_create(sample_fleet_1());

        train_something(p);
        e = fleet_executor_create(p, NULL);
    }
    return e;
}

static void save_model(void)
{
    fleet_program *p = fleet_program_create(sample_fleet_1());
    fleet_var *x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 2}, 2);
    fleet_var *y = fleet_relu(p, x);
    fleet_executor *e = fleet_executor_create(p, NULL);

    model_path = test_path("model");
    CHECK_OK(fleet_save_inference_model(handle, model_path, &x, 1, &y, 1));
    fleet_executor_destroy(e);
    fleet_destroy(handle);
    handle = NULL;
}

static void *sample_fleet_predictor_1(void)
{
    static fleet_predictor *p;

    if (!p)
        p = fleet_load_inference_model(model_path);
    CHECK(p != NULL);
    return p;
}

static void *sample_fleet_psgpu_1(void)
{
    static fleet_psgpu *g;

    if (!g)
        g = fleet_psgpu_create(sample_fleet_1(), NULL);
    CHECK(g != NULL);
    return g;
}

static void *sample_fleet_dataset_1(void)
{
    static const fleet_slot slot = {.name = "x", .dim = 2};
    static fleet_dataset *d;

    if (!d) {
        d = fleet_queue_dataset(
            sample_fleet_1(),
            &(fleet_dataset_options){.slots = &slot, .n_slot = 1});
        CHECK(d != NULL);
        CHECK_OK(fleet_dataset_set_filelist(d, (const char *[]){data_path}, 1));
    }
    return d;
}

static void *sample_fleet_delta_feed_1(void)
{
    static fleet_delta_feed *feed;

    if (!feed)
        feed = fleet_feed_open(
            &(fleet_feed_options){.server_endpoints = "inproc://nobody"});
    CHECK(feed != NULL);
    return feed;
}

static void *sample_fleet_feed_batch_2(void)
{
    static const fleet_feed_batch *batch;

    return &batch;
}

static void *sample_fleet_optimizer_1(void)
{
    static fleet_optimizer *o;

    if (!o)
        o = fleet_sgd(sample_fleet_1(), 0.1f);
    return o;
}

static void *sample_char_1(void)
{
    static char text[] = "cpu"; /* a device, and a name like any other */

    return text;
}

static void *sample_char_2(void)
{
    static char *list[MANY];

    for (int i = 0; i < MANY; i++)
        list[i] = sample_char_1();
    return list;
}

static void *sample_void_1(void)
{
    static double memory[100];

    return memory;
}

static void *sample_void_2(void)
{
    static double memory[MANY][100];
    static void *list[MANY];

    for (int i = 0; i < MANY; i++)
        list[i] = memory[i];
    return list;
}

/* Zeroed: the defaults of options. */
#define ZEROS(type)                                                            \
    static void *sample_##type##_1(void)                                       \
    {                                                                          \
        static type zeros[MANY];                                               \
                                                                               \
        return zeros;                                                          \
    }

#define NUMBERS(type)                                                          \
    static void *sample_##type##_1(void)                                       \
    {                                                                          \
        static type number[FLEET_MAX_DIM] = {1, 2, 3, 4};                      \
                                                                               \
        return number;                                                         \
    }

static void *sample_fleet_2(void)
{
    static fleet *place;

    return &place;
}

ZEROS(fleet_adagrad_options)
ZEROS(fleet_adadelta_options)
ZEROS(fleet_adamw_options)
ZEROS(fleet_rmsprop_options)
ZEROS(fleet_std_adagrad_options)
ZEROS(fleet_rowwise_adagrad_options)
ZEROS(fleet_adam_options)
ZEROS(fleet_attention_options)
ZEROS(fleet_cross_options)
ZEROS(fleet_config_options)
ZEROS(fleet_conv_options)
ZEROS(fleet_custom_attr)
ZEROS(fleet_custom_attrs)
ZEROS(fleet_custom_tensor)
ZEROS(fleet_batch_norm_options)
ZEROS(fleet_ctr_options)
ZEROS(fleet_dataset_options)
ZEROS(fleet_data_norm_options)
ZEROS(fleet_dice_options)
ZEROS(fleet_distributed_strategy)
ZEROS(fleet_embedding_options)
ZEROS(fleet_evaluation)
ZEROS(fleet_executor_options)
ZEROS(fleet_export_options)
ZEROS(fleet_fc_options)
ZEROS(fleet_feed)
ZEROS(fleet_fetch)
ZEROS(fleet_ftrl_options)
ZEROS(fleet_gru_options)
ZEROS(fleet_import_options)
ZEROS(fleet_importance)
ZEROS(fleet_importance_options)
ZEROS(fleet_inference_options)
ZEROS(fleet_in_batch_options)
ZEROS(fleet_layer_norm_options)
ZEROS(fleet_lenet_options)
ZEROS(fleet_load_options)
ZEROS(fleet_lstm_options)
ZEROS(fleet_save_options)
ZEROS(fleet_schedule)
ZEROS(fleet_load_table_options)
ZEROS(fleet_mlp_options)
ZEROS(fleet_model)
ZEROS(fleet_momentum_options)
ZEROS(fleet_options)
ZEROS(fleet_param_attr)
ZEROS(fleet_parameter_info)
ZEROS(fleet_place)
ZEROS(fleet_place_options)
ZEROS(fleet_replay_options)
ZEROS(fleet_replay_result)
ZEROS(fleet_plateau_options)
ZEROS(fleet_onnx_options)
ZEROS(fleet_pool_options)
ZEROS(fleet_predict_options)
ZEROS(fleet_predict_result)
ZEROS(fleet_psgpu_options)
ZEROS(fleet_ranking)
ZEROS(fleet_report)
ZEROS(fleet_sparse_embedding_options)
ZEROS(fleet_slot_statistics)
ZEROS(fleet_table_statistics)
ZEROS(fleet_cache_statistics)
ZEROS(fleet_train_options)
ZEROS(fleet_train_result)
NUMBERS(double)
NUMBERS(float)
NUMBERS(int)
NUMBERS(int64_t)
NUMBERS(size_t)
NUMBERS(uint64_t)

/* --- calls ---------------------------------------------------------------- */

typedef struct null_call {
    const char *function, *null; /* which parameter */
    int number;                  /* for parameters that are no pointers */
    void (*call)(void);
} null_call;

/* A call that fails says why; the end of data is no failure. */
static void check_said(fleet_status status)
{
    if (status != FLEET_OK && status != FLEET_EEND)
        CHECK(*fleet_last_error() != 0);
}

#include "null_calls.h"

static void make_call(const null_call *c)
{
    enum { SECONDS = 10 * TEST_SLOWNESS };

    CHECK(chdir(folder) == 0);
    alarm(SECONDS);
    c->call();
    _exit(0);
}

TEST_LIMIT(no_function_minds_a_null, 120)
{
    const int n = (int)(sizeof null_calls / sizeof *null_calls);
    fl_text faults = {0};

    folder = test_folder();
    data_path = test_file("data.txt", "2 1 2\n");
    save_model();
    CHECK(n > N_FUNCTION);
    for (int i = 0; i < n; i++) {
        const null_call *c = &null_calls[i];
        pid_t child = test_fork();
        int status;

        if (child == 0)
            make_call(c);
        CHECK(waitpid(child, &status, 0) == child);
        if (status != 0)
            fl_text_add(&faults, "\n%s, %s NULL, numbers %d: status %#x",
                        c->function, c->null, c->number, (unsigned)status);
    }
    CHECK_TEXT(fl_text_chars(&faults), "");
    fl_text_done(&faults);
}
