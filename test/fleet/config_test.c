/* config_test.c - configurations of fleet-train: what is refused, and with
 * which words. */
#define SUITE config
#include "test.h"
#include "train_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/fleet.h>

#include "base/text.h"
#include "fleet/config/config.h"

#define MODEL "\"model\": {\"type\": \"wide_deep\"}"
#define DATA                                                                   \
    "\"dataset\": {\"format\": \"multislot\", \"train\": [\"a\"], "            \
    "\"batch_size\": 4}"
#define SLOTS                                                                  \
    "\"slots\": [{\"name\": \"y\", \"type\": \"float\", \"role\": \"label\"}," \
    "{\"name\": \"u\", \"type\": \"uint64\"}]"

static fleet_status read(const char *text)
{
    fl_config c;
    fleet_status status = fl_config_read(&c, text, strlen(text), "f.json");

    fl_config_done(&c);
    return status;
}

#define REFUSED(text, words) CHECK_FAILS(read(text), FLEET_ECONFIG, words)

TEST(takes_the_least_that_is_needed)
{
    CHECK_OK(read("{" MODEL "," DATA "," SLOTS "}"));
}

TEST(mixed_precision_has_fleets_fields)
{
    static const char text[] =
        "{" MODEL "," DATA "," SLOTS ", \"device\": \"gpu:0\", \"strategy\": "
        "{\"amp\": true, \"amp_configs\": {\"init_loss_scaling\": 1e12, "
        "\"use_dynamic_loss_scaling\": false, \"custom_black_list\": "
        "\"fc,softmax\", \"use_fp16_guard\": true}}}";
    fl_config c;

    CHECK_OK(fl_config_read(&c, text, strlen(text), "f.json"));
    CHECK_INT(c.strategy.amp, 1);
    CHECK_NEAR(c.strategy.amp_configs.init_loss_scaling, 1e12f, 0);
    CHECK_INT(c.strategy.amp_configs.use_dynamic_loss_scaling, 0);
    CHECK_TEXT(c.strategy.amp_configs.custom_black_list, "fc,softmax");
    fl_config_done(&c);
    REFUSED("{" MODEL ", \"strategy\": {\"amp_configs\": "
            "{\"custom_black_list\": [\"fc\"]}}}",
            "strategy.amp_configs.custom_black_list: expected a string");
}

TEST(a_load_is_a_path_or_says_how)
{
    static const char text[] =
        "{" MODEL "," DATA "," SLOTS ", \"load\": {\"path\": \"old\", "
        "\"on_missing\": \"initialize\", \"on_extra\": \"refuse\", "
        "\"states\": \"initialize\", \"restart\": true}}";
    fl_config c;

    CHECK_OK(fl_config_read(&c, text, strlen(text), "f.json"));
    CHECK_TEXT(c.load, "old");
    CHECK_INT(c.load_options.on_missing, FLEET_MISSING_INITIALIZE);
    CHECK_INT(c.load_options.on_extra, FLEET_EXTRA_REFUSE);
    CHECK_INT(c.load_options.states, FLEET_STATES_INITIALIZE);
    CHECK_INT(c.load_options.restart, 1);
    CHECK_INT(c.load_options.position, FLEET_POSITION_ANEW);
    fl_config_done(&c);
    REFUSED("{" MODEL "," DATA "," SLOTS ", \"load\": {\"path\": \"old\", "
            "\"on_missing\": \"drop\"}}",
            "load.on_missing: expected one of \"refuse\", \"keep\"");
    REFUSED("{" MODEL "," DATA "," SLOTS ", \"load\": {\"states\": "
            "\"refuse\"}}",
            "load.path");
    REFUSED("{" MODEL "," DATA "," SLOTS ", \"load\": 3}",
            "load: expected a string or an object");
}

TEST(saves_are_made_every_so_many_steps_or_seconds)
{
    static const char text[] =
        "{" MODEL "," DATA "," SLOTS ", \"save\": \"m\", \"save_every\": "
        "{\"steps\": 7, \"seconds\": 0.5, \"keep\": 2}, \"load\": "
        "{\"path\": \"old\", \"position\": \"resume\"}}";
    fl_config c;

    CHECK_OK(fl_config_read(&c, text, strlen(text), "f.json"));
    CHECK_TEXT(c.save_every.folder, "m.checkpoints");
    CHECK_INT(c.save_every.steps, 7);
    CHECK_NEAR(c.save_every.seconds, 0.5, 0);
    CHECK_INT(c.save_every.keep, 2);
    CHECK_INT(c.load_options.position, FLEET_POSITION_RESUME);
    fl_config_done(&c);
    REFUSED("{" MODEL "," DATA "," SLOTS ", \"save_every\": {\"steps\": 1}}",
            "save_every.folder: expected a folder: there is no `save`");
    REFUSED("{" MODEL "," DATA "," SLOTS ", \"save\": \"m\", "
            "\"save_every\": {\"steps\": 0}}",
            "save_every.steps: expected an integer from 1");
    REFUSED("{" MODEL "," DATA "," SLOTS ", \"load\": {\"path\": \"m\", "
            "\"position\": \"middle\"}}",
            "load.position: expected one of \"resume\", \"anew\"");
}

/* Text becomes ids, but a class is a number. */
TEST(a_label_in_a_csv_is_a_number)
{
    static const char text[] =
        "{" MODEL ", \"dataset\": {\"format\": \"csv\", \"train\": [\"a\"]}, "
        "\"slots\": [{\"name\": \"y\", \"type\": \"uint64\", \"columns\": [0], "
        "\"role\": \"label\"}, {\"name\": \"u\", \"type\": \"uint64\", "
        "\"columns\": [1]}, {\"name\": \"v\", \"type\": \"uint64\", "
        "\"columns\": [2], \"transform\": \"none\"}]}";
    fl_config c;

    CHECK_OK(fl_config_read(&c, text, strlen(text), "f.json"));
    CHECK_INT(c.slot[0].slot.n_transform, 1);
    CHECK_INT(c.slot[0].slot.transforms[0], FLEET_TRANSFORM_NONE);
    CHECK_INT(c.slot[1].slot.n_transform, 0); /* of ids: a hash */
    CHECK_INT(c.slot[2].slot.transforms[0], FLEET_TRANSFORM_NONE);
    fl_config_done(&c);
}

TEST(names_a_line_that_is_not_json)
{
    REFUSED("{\n\n\"model\": }",
            "f.json:3:10: not valid JSON: expected a value, got '}'");
    REFUSED("{} {}", "f.json:1:4: text after the end");
    REFUSED("[]", "the whole text: expected an object");
}

/* A raw zero would end the path of a save before its end. */
TEST(names_a_line_with_characters_that_json_has_not)
{
    static const char zero[] = "{\"save\":\n\"a\0b\"}";
    fl_config c;

    CHECK_FAILS(fl_config_read(&c, zero, sizeof zero - 1, "f.json"),
                FLEET_ECONFIG, "f.json:2: a control character (0x00)");
    fl_config_done(&c);
    REFUSED("{\"save\": \"a\tb\"}", "f.json:1: a control character (0x09)");
    REFUSED("{\n\n\"save\": \"caf\xe9\"}",
            "f.json:3: a string that is not UTF-8 (0xe9)");
}

/* A list of n texts or numbers: "0", "1", ... */
static void add_list(fl_text *t, const char *key, const char *format, int n)
{
    fl_text_add(t, "\"%s\": [", key);
    for (int i = 0; i < n; i++) {
        fl_text_add(t, "%s", i ? "," : "");
        fl_text_add(t, format, i + 1);
    }
    fl_text_add(t, "]");
}

/* In 10 seconds, not in 60 as when each element is looked for from the first
 * one on. */
TEST_LIMIT(long_lists_are_read_at_once, 10)
{
    enum { N = 100000 };
    fl_text t = {0};
    fl_config c;

    fl_text_add(&t, "{" MODEL ", \"optimizer\": {\"type\": \"sgd\", "
                    "\"decay\": {\"type\": \"piecewise\", ");
    add_list(&t, "boundaries", "%d", N);
    fl_text_add(&t, ", ");
    add_list(&t, "values", "%d", N + 1);
    fl_text_add(&t, "}}, \"dataset\": {\"format\": \"csv\", ");
    add_list(&t, "train", "\"f%d\"", N);
    fl_text_add(&t, "}, \"slots\": [{\"name\": \"y\", \"type\": \"float\", "
                    "\"role\": \"label\", \"columns\": [0], "
                    "\"transform\": \"equals\", ");
    add_list(&t, "value", "\"v%d\"", N);
    fl_text_add(&t,
                "}, {\"name\": \"u\", \"type\": \"uint64\", "
                "\"dim\": %d, ",
                N);
    add_list(&t, "columns", "%d", N);
    fl_text_add(&t, "}]}");
    CHECK_OK(t.status);
    CHECK_OK(fl_config_read(&c, t.chars, t.length, "f.json"));
    CHECK_INT(c.optimizer.schedule.n, N);
    CHECK_TEXT(c.train[N - 1], "f100000");
    CHECK_INT(c.slot[1].slot.n_column, N);
    fl_config_done(&c);
    fl_text_done(&t);
}

TEST(names_what_is_missing)
{
    REFUSED("{}", "f.json: model: missing");
    REFUSED("{\"model\": {}}", "model.type: missing");
    REFUSED("{" MODEL "}", "dataset: missing");
    REFUSED("{" MODEL ", \"dataset\": {}}", "dataset.format: missing");
    REFUSED("{" MODEL ", \"dataset\": {\"format\": \"csv\"}}",
            "dataset.train: missing");
    REFUSED("{" MODEL "," DATA "}", "slots: missing");
    REFUSED("{" MODEL "," DATA ", \"slots\": [{\"name\": \"u\", \"type\": "
            "\"uint64\"}]}",
            "expected one slot with \"role\": \"label\", got 0");
}

#define TWO(first, second)                                                     \
    "{" MODEL "," DATA ", \"slots\": [{\"name\": \"y\", \"type\": "            \
    "\"float\", \"role\": \"label\"}, {\"name\": \"u\", \"type\": "            \
    "\"uint64\"}, {\"name\": \"v\", " first "}, {\"name\": \"w\", " second     \
    "}]}"
#define WEIGHT "\"type\": \"float\", \"role\": \"weight\""

TEST(one_slot_of_numbers_has_the_weights_of_samples)
{
    CHECK_OK(read(TWO("\"type\": \"float\"", WEIGHT)));
    REFUSED(TWO(WEIGHT, WEIGHT),
            "slots: expected at most one slot with \"role\": \"weight\", got "
            "2");
    REFUSED(TWO("\"type\": \"float\"", WEIGHT ", \"dim\": 2"),
            "slots[3].role: expected \"label\": a weight is a slot of type "
            "\"float\" and dim 1");
    REFUSED(TWO("\"type\": \"uint64\", \"role\": \"weight\"", WEIGHT),
            "slots[2].role: expected \"label\"");
}

TEST(names_a_key_that_does_not_exist)
{
    REFUSED("{\"modle\": 1}",
            "modle: unknown key: did you mean \"model\"? Expected one of: "
            "model");
    REFUSED("{\"model\": {\"type\": \"mlp\", \"units\": 3}}",
            "model.units: unknown key");
    REFUSED("{" MODEL ", \"strategy\": {\"a_sink\": true}}",
            "strategy.a_sink: unknown key");
    REFUSED("{" MODEL ", \"strategy\": {\"a_sync_configs\": {\"k\": 1}}}",
            "strategy.a_sync_configs.k: unknown key; expected one of: k_steps");
    REFUSED("{" MODEL "," DATA ", \"slots\": [{\"nam\": \"u\"}]}",
            "slots[0].nam: unknown key");
    REFUSED("{" MODEL "," MODEL "}", "model: stands twice");
}

TEST(names_a_value_of_the_wrong_type)
{
    REFUSED("{\"model\": \"wide_deep\"}",
            "model: expected an object, got \"wide_deep\"");
    REFUSED("{" MODEL ", \"epochs\": \"3\"}",
            "epochs: expected an integer from 1 to 1000000, got \"3\"");
    REFUSED("{" MODEL ", \"epochs\": 2.5}", "got 2.5");
    REFUSED("{" MODEL ", \"trainer\": {\"thread\": 65}}",
            "trainer.thread: expected an integer from 1 to 64, got 65");
    REFUSED("{" MODEL ", \"trainer\": {\"hogwild\": true}}",
            "trainer.hogwild: expected false: it is for thread 2 or more");
    REFUSED("{" MODEL ", \"strategy\": {\"a_sync\": 1}}",
            "strategy.a_sync: expected true or false, got 1");
    REFUSED("{" MODEL ", \"dataset\": {\"format\": \"csv\", \"train\": \"x\"}}",
            "dataset.train: expected an array, got \"x\"");
    REFUSED("{" MODEL ", \"dataset\": {\"format\": \"csv\", \"train\": [1]}}",
            "dataset.train[0]: expected a string, got 1");
}

TEST(names_a_value_out_of_range)
{
    REFUSED("{\"model\": {\"type\": \"deep\"}}",
            "model.type: expected one of \"wide_deep\", \"ctr_dnn\", "
            "\"deepfm\", \"mlp\", \"lenet\", \"logistic_regression\", \"fm\"");
    REFUSED("{\"model\": {\"type\": \"wide_deep\", \"embedding_dim\": 0}}",
            "model.embedding_dim: expected an integer from 1");
    REFUSED("{\"model\": {\"type\": \"wide_deep\", \"hidden\": [8, 0]}}",
            "model.hidden[1]: expected");
    REFUSED("{" MODEL ", \"dataset\": {\"format\": \"csv\", "
            "\"pipe_timeout_ms\": 2147483648}}",
            "dataset.pipe_timeout_ms: expected an integer from 0 to "
            "2147483647, got 2147483648");
    REFUSED("{" MODEL ", \"optimizer\": {\"learning_rate\": -1}}",
            "optimizer.learning_rate: expected a number");
    REFUSED("{" MODEL ", \"optimizer\": {\"beta1\": 0}}",
            "optimizer.beta1: expected a number from 1e-09");
    REFUSED("{" MODEL ", \"seed\": -1}", "seed: expected");
    REFUSED("{" MODEL "," DATA ", \"slots\": [{\"name\": \"d\", \"type\": "
            "\"float\", \"dim\": 0}]}",
            "slots[0].dim: expected 1 or more, or -1 for any number, got 0");
}

/* A double has no 2^53 + 1: it would be another number than what was said. */
TEST(takes_no_integer_that_a_double_does_not_hold)
{
    static const char *const text[] = {
        "{" MODEL ", \"seed\": %s," DATA "," SLOTS "}",
        "{\"model\": {\"type\": \"wide_deep\", \"ttl_updates\": %s}," DATA
        "," SLOTS "}",
        "{\"model\": {\"type\": \"wide_deep\", \"most_rows\": %s}," DATA
        "," SLOTS "}",
        "{\"model\": {\"type\": \"wide_deep\", \"rows\": %s}," DATA "," SLOTS
        "}",
        "{\"model\": {\"type\": \"wide_deep\", \"fresh\": \"row\", "
        "\"default_id\": %s}," DATA "," SLOTS "}"};
    char line[1000];

    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        snprintf(line, sizeof line, text[i], "9007199254740991");
        CHECK_OK(read(line));
        snprintf(line, sizeof line, text[i], "9007199254740993");
        REFUSED(line, "to 9007199254740991, got 9.00719925474099e+15");
    }
}

TEST(names_what_does_not_go_together)
{
    REFUSED("{" MODEL ", \"optimizer\": {\"type\": \"sgd\", \"beta1\": 0.5}}",
            "optimizer.beta1: expected nothing: it is another optimizer's");
    REFUSED("{" MODEL ", \"optimizer\": {\"l1_decay\": -1}}",
            "optimizer.l1_decay: expected a number from 0");
    REFUSED("{" MODEL ", \"optimizer\": {\"clip_norm\": 0}}",
            "optimizer.clip_norm: expected a number from 1e-30");
    REFUSED("{" MODEL ", \"optimizer\": {\"tables\": {\"t\": "
            "{\"clip_norm\": 1}}}}",
            "optimizer.tables.t.clip_norm");
    REFUSED("{" MODEL ", \"optimizer\": {\"clip_value\": 0}}",
            "optimizer.clip_value: expected a number from 1e-30");
    REFUSED("{" MODEL ", \"optimizer\": {\"type\": \"ftrl\", \"beta\": 0}}",
            "optimizer.beta: expected a number from 1e-30");
    REFUSED("{" MODEL ", \"optimizer\": {\"type\": \"adamw\", "
            "\"weight_decay\": 0}}",
            "optimizer.weight_decay: expected a number from 1e-30");
    REFUSED("{" MODEL ", \"optimizer\": {\"type\": \"rowwise_adagrad\", "
            "\"epsilon\": 0.5, \"initial_g2sum\": 3}}",
            "optimizer: rowwise_adagrad: epsilon 0.5 beside initial_g2sum 3");
    REFUSED("{\"model\": {\"type\": \"mlp\", \"storage\": \"int8\"}}",
            "model.storage: expected nothing: model mlp has no storage");
    REFUSED("{\"model\": {\"type\": \"mlp\"}, \"optimizer\": "
            "{\"row_bounds\": [0, 1]}}",
            "optimizer.row_bounds: expected nothing: the model has no");
    REFUSED("{\"model\": {\"type\": \"mlp\"}, \"optimizer\": "
            "{\"row_steps\": true}}",
            "optimizer.row_steps: expected nothing: the model has no");
    REFUSED("{" MODEL "," DATA "," SLOTS ", \"load\": \"\"}",
            "load: expected a path that is not empty, got \"\"");
    REFUSED("{" MODEL "," DATA "," SLOTS ", \"load\": {\"path\": \"\"}}",
            "load.path: expected a path that is not empty");
    REFUSED("{" MODEL "," DATA "," SLOTS ", \"save\": \"\"}",
            "save: expected a path that is not empty");
    REFUSED("{" MODEL ", \"optimizer\": {\"momentum\": 0.5}}",
            "optimizer.momentum: expected nothing");
    REFUSED("{\"model\": {\"type\": \"mlp\", \"embedding_dim\": 4}}",
            "model.embedding_dim: expected nothing");
    REFUSED("{\"model\": {\"type\": \"deepfm\", \"wide_ids\": true}}",
            "model.wide_ids: expected nothing: model deepfm has no wide_ids");
    REFUSED("{" MODEL ", \"dataset\": {\"format\": \"multislot\", \"train\": "
            "[\"a\"], \"separator\": \";\"}}",
            "dataset.separator: expected nothing: it is for csv");
    REFUSED("{" MODEL ", \"dataset\": {\"format\": \"criteo\", \"train\": "
            "[\"a\"]}, " SLOTS "}",
            "slots: expected nothing: this format has slots of its own");
    REFUSED("{" MODEL ", \"dataset\": {\"format\": \"idx\", \"train\": "
            "[\"a\"]}}",
            "dataset.train: expected two files");
    REFUSED("{" MODEL "," DATA ", \"slots\": [{\"name\": \"y\", \"type\": "
            "\"uint64\", \"role\": \"label\", \"table\": \"t\"}]}",
            "slots[0].table: expected nothing: only ids have a table");
    REFUSED("{\"model\": {\"type\": \"mlp\"}, " DATA "," SLOTS "}",
            "f.json: slots: beside its label an mlp reads one slot of floats, "
            "got 0 of floats and 1 of uint64");
    REFUSED("{\"model\": {\"type\": \"mlp\"}, " DATA
            ", \"slots\": [{\"name\": \"x\", \"type\": \"float\"}, {\"name\": "
            "\"y\", \"type\": \"float\", \"role\": \"label\"}]}",
            "f.json: slots[1].type: the label of model mlp is a class: "
            "expected \"uint64\", got \"float\"");
    REFUSED("{\"model\": {\"type\": \"ctr_dnn\"}, " DATA
            ", \"slots\": [{\"name\": \"y\", \"type\": \"float\", \"role\": "
            "\"label\"}, {\"name\": \"x\", \"type\": \"uint64\"}]}",
            "f.json: slots[0].type: the label of model ctr_dnn is a class");
    REFUSED("{" MODEL "," DATA ", \"slots\": [{\"name\": \"y\", \"type\": "
            "\"uint64\", \"role\": \"label\"}]}",
            "slots: model wide_deep needs at least one slot of type uint64");
    REFUSED("{" MODEL ", \"dataset\": {\"format\": \"idx\", \"train\": "
            "[\"a\", \"b\"]}}",
            "dataset.format: model wide_deep needs");
}

/* What a dataset refuses stands at the place where it is said. */
TEST(names_the_slot_that_its_dataset_refuses)
{
#define CSV(dataset, slot)                                                     \
    "{" MODEL                                                                  \
    ", \"dataset\": {\"format\": \"csv\", \"train\": [\"a\"]" dataset          \
    "}, \"slots\": [{\"name\": \"y\", \"type\": \"float\", \"columns\": [0], " \
    "\"role\": \"label\"}, {\"name\": \"x\", " slot "}]}"
#define FLOAT "\"type\": \"float\", \"columns\": [1, 2], \"dim\": 2"
    REFUSED(CSV("", FLOAT ", \"transform\": \"hash\""),
            "f.json: slots[1]: slot \"x\": hash makes ids");
    REFUSED(CSV("", FLOAT ", \"transform\": [\"none\"]"), "uint64");
    REFUSED(CSV("", FLOAT ", \"value\": [\"a\"]"),
            "slots[1]: slot \"x\": texts to compare with, but no equals");
    REFUSED(CSV("", "\"type\": \"float\", \"columns\": [1], \"dim\": 3"),
            "slots[1]: slot \"x\": its dim is 3 but it has 1 columns");
    REFUSED(CSV("", "\"type\": \"uint64\", \"columns\": [\"a\"]"),
            "slots[1]: slot \"x\": without a header");
    REFUSED(CSV("", "\"type\": \"uint64\""),
            "slots[1]: slot \"x\": a csv slot needs columns");
    REFUSED(CSV(", \"comment\": \",\"", "\"type\": \"float\""),
            "f.json: dataset: comment: the separator");
#undef FLOAT
#undef CSV
}

TEST(refuses_what_this_version_does_not_have_by_name)
{
    CHECK_FAILS(read("{" MODEL ", \"device\": \"gpu:x\"}"), FLEET_ECONFIG,
                "device: expected \"cpu\", \"gpu\" or \"gpu:0\"");
    CHECK_FAILS(read("{" MODEL ", \"strategy\": {\"amp\": true, "
                     "\"amp_configs\": {\"use_pure_fp16\": true}}}"),
                FLEET_EUNSUPPORTED,
                "strategy.amp_configs.use_pure_fp16: this version does not "
                "have 1");
    CHECK(!strstr(fleet_last_error(), "mode") &&
          !strstr(fleet_last_error(), "zeros"));
    CHECK_FAILS(read("{" MODEL ", \"strategy\": {\"a_sync\": false, "
                     "\"a_sync_configs\": {\"k_steps\": 5}}}"),
                FLEET_EINVAL, "strategy.a_sync_configs.k_steps is 5");
}

/* --- the strategy as a struct -------------------------------------------- */

static fleet *open_fleet(void)
{
    fleet *f;

    CHECK_OK(fleet_init(&f, NULL));
    return f;
}

#define STRATEGY(change, status, words)                                        \
    do {                                                                       \
        fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;        \
        fleet *f = open_fleet();                                               \
                                                                               \
        s.change;                                                              \
        kit_refused(f, fleet_sgd(f, 0.1f), &s, status, words);                 \
        fleet_destroy(f);                                                      \
    } while (0)

TEST(each_strategy_field_that_is_not_there_is_refused)
{
    STRATEGY(amp_configs.use_pure_fp16 = 1, FLEET_EUNSUPPORTED,
             "strategy.amp_configs.use_pure_fp16");
}

TEST(a_strategy_field_that_cannot_be_so_is_refused)
{
    STRATEGY(gradient_merge_configs.k_steps = 0, FLEET_EINVAL,
             "strategy.gradient_merge_configs.k_steps: expected 1");
    STRATEGY(gradient_merge_configs.k_steps = 2, FLEET_EINVAL,
             "but strategy.gradient_merge is 0");
    STRATEGY(a_sync = 2, FLEET_EINVAL, "strategy.a_sync: expected 0 to 1");
    STRATEGY(a_sync_configs.send_queue_size = 0, FLEET_EINVAL,
             "strategy.a_sync_configs.send_queue_size");
    STRATEGY(nccl_comm_num = 0, FLEET_EINVAL, "strategy.nccl_comm_num");
    STRATEGY(amp_configs.use_bf16 = 1, FLEET_EINVAL,
             "strategy.amp_configs.use_bf16 is 1, but strategy.amp is 0");
    STRATEGY(amp_configs.init_loss_scaling = 0, FLEET_EINVAL,
             "strategy.amp_configs.init_loss_scaling: expected 1e-06 to 1e+12");
    STRATEGY(amp_configs.incr_every_n_steps = 0, FLEET_EINVAL,
             "strategy.amp_configs.incr_every_n_steps: expected 1");
    STRATEGY(amp_configs.decr_every_n_nan_or_inf = -1, FLEET_EINVAL,
             "strategy.amp_configs.decr_every_n_nan_or_inf: expected 1");
    STRATEGY(amp_configs.incr_ratio = 0.5f, FLEET_EINVAL,
             "strategy.amp_configs.incr_ratio: expected 1");
    STRATEGY(amp_configs.decr_ratio = 1.5f, FLEET_EINVAL,
             "strategy.amp_configs.decr_ratio: expected 1e-06 to 1, got 1.5");
    STRATEGY(amp_configs.use_dynamic_loss_scaling = 2, FLEET_EINVAL,
             "strategy.amp_configs.use_dynamic_loss_scaling: expected 0 to 1");
    STRATEGY(localsgd_configs.k_steps = 4, FLEET_EINVAL,
             "but strategy.localsgd is 0");
    STRATEGY(lars = s.dgc = 1, FLEET_EINVAL,
             "strategy.dgc and strategy.lars contradict");
    STRATEGY(dgc_configs.sparsity = 1, FLEET_EINVAL,
             "strategy.dgc_configs.sparsity: expected 0 to below 1, got 1");
}

TEST(the_strategy_dump_says_what_became_of_each_field)
{
    fleet *f = open_fleet();
    fleet_program *p = fleet_program_create(f);
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_model m;
    char *text;

    s.gradient_merge = 1;
    s.gradient_merge_configs.k_steps = 4;
    fleet_mlp(p, &(fleet_mlp_options){.dim = 4, .classes = 2}, &m);
    CHECK_OK(fleet_minimize(
        fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), &s), m.loss));
    text = fleet_strategy_dump(f);
    CHECK_CONTAINS(text, "a_sync ");
    CHECK_CONTAINS(text, "no effect: no servers, training is synchronous");
    CHECK_CONTAINS(text, "gradient_merge_configs.k_steps");
    CHECK_CONTAINS(text, "asked    honoured");
    CHECK_CONTAINS(text, "passes ");
    CHECK_CONTAINS(text, "gradient_merge");
    CHECK_CONTAINS(text, "mode local, workers 1, servers 0");
    fleet_free(text);
    fleet_destroy(f);
}

static void keep_warnings(void *user, fleet_log_level level, const char *line)
{
    if (level == FLEET_LOG_WARNING)
        snprintf((char *)user + strlen(user), 500, "%s\n", line);
}

TEST(what_is_asked_for_in_vain_is_in_the_log)
{
    char lines[2000] = "";
    fleet_options o = {.log = keep_warnings, .log_user = lines};
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet *f;

    CHECK_OK(fleet_init(&f, &o));
    s.gradient_merge = 1;
    s.a_sync = 0; /* and it is off */
    CHECK(fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), &s) != NULL);
    CHECK_TEXT(lines, "");
    s.a_sync = 1;
    s.a_sync_configs.k_steps = 3;
    s.a_sync_configs.max_staleness = 0;
    s.nccl_comm_num = 2;
    CHECK(fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), &s) != NULL);
    CHECK_TEXT(lines,
               "strategy.a_sync_configs.k_steps is 3: no effect: no servers, "
               "training is synchronous\n"
               "strategy.a_sync_configs.max_staleness is 0: no effect: no "
               "servers, training is synchronous\n"
               "strategy.nccl_comm_num is 2: no effect: one worker\n");
    fleet_destroy(f);
}

/* What is in the log of a handle with that strategy. */
static void check_told(const fleet_distributed_strategy *s, const char *want)
{
    char lines[2000] = "";
    fleet_options o = {.log = keep_warnings, .log_user = lines};
    fleet *f;

    CHECK_OK(fleet_init(&f, &o));
    CHECK(fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), s) != NULL);
    CHECK_TEXT(lines, want);
    fleet_destroy(f);
}

TEST(a_field_of_what_is_off_has_no_effect_and_is_in_the_log)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;

    s.gradient_merge_configs.avg = 0;
    s.amp_configs.init_loss_scaling = 1024;
    s.amp_configs.incr_ratio = 4;
    check_told(&s, "strategy.gradient_merge_configs.avg is 0: no effect: "
                   "strategy.gradient_merge is 0\n"
                   "strategy.amp_configs.init_loss_scaling is 1024: no effect: "
                   "strategy.amp is 0\n"
                   "strategy.amp_configs.incr_ratio is 4: no effect: "
                   "strategy.amp is 0\n");
    s.gradient_merge = s.amp = 1;
    check_told(&s, "");
    s.amp_configs.use_dynamic_loss_scaling = 0;
    check_told(&s, "strategy.amp_configs.incr_ratio is 4: no effect: "
                   "strategy.amp_configs.use_dynamic_loss_scaling is 0\n");
}

TEST(a_zero_that_is_asked_for_in_vain_is_in_the_log)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;

    s.a_sync_configs.launch_barrier = 0;
    s.amp_configs.use_dynamic_loss_scaling = 0;
    s.amp_configs.use_fp16_guard = 0;
    s.fuse_all_reduce_ops = 0;
    check_told(&s,
               "strategy.a_sync_configs.launch_barrier is 0: no effect: no "
               "servers, training is synchronous\n"
               "strategy.amp_configs.use_dynamic_loss_scaling is 0: no "
               "effect: strategy.amp is 0\n"
               "strategy.amp_configs.use_fp16_guard is 0: no effect: for "
               "use_pure_fp16 alone\n"
               "strategy.fuse_all_reduce_ops is 0: no effect: one worker\n");
}

TEST(the_dump_names_the_switch_that_is_off)
{
    fleet *f;
    char *text;

    CHECK_OK(fleet_init(&f, NULL));
    text = fleet_strategy_dump(f);
    CHECK_CONTAINS(text, "amp_configs.incr_ratio                           2"
                         "            default  no effect: strategy.amp is 0\n");
    CHECK_CONTAINS(text, "amp_configs.use_fp16_guard                       1"
                         "            default  no effect: for use_pure_fp16");
    fleet_free(text);
    fleet_destroy(f);
}

TEST(an_instruction_set_that_is_not_there_is_warned_about)
{
    char lines[2000] = "";
    fleet_options o = {.log = keep_warnings, .log_user = lines};
    fleet *f;

    setenv("FLEET_ISA", "neon", 1);
    CHECK_OK(fleet_init(&f, &o));
    CHECK_CONTAINS(lines, "FLEET_ISA is \"neon\"");
    fleet_destroy(f);
}
