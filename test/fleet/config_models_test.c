/* config_models_test.c - every model by a configuration, with the keys of
 * its own: it trains, is evaluated, and is saved; and keys and slots that
 * are no good. */
#define SUITE config_models
#include "model_kit.h"
#include "test.h"
#include "train_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json.h"
#include "base/text.h"
#include "fleet/config/models.h"

typedef struct by_config {
    const char *name, *keys; /* of `model`, beside its type */
} by_config;

#define DEEP ", \"embedding_dim\": 4, \"hidden\": [8]"

static const by_config models[] = {
    {"wide_deep", DEEP ", \"wide_ids\": true"},
    {"ctr_dnn", DEEP},
    {"deepfm", DEEP},
    {"logistic_regression", ""},
    {"fm", ", \"embedding_dim\": 4"},
    {"ffm", ", \"embedding_dim\": 4, \"storage\": \"float16\""},
    {"nfm", DEEP},
    {"xdeepfm", DEEP ", \"cin\": [5, 3]"},
    {"dcn", DEEP ", \"cross_layers\": 3"},
    {"dcn_v2", DEEP ", \"low_rank\": 3, \"experts\": 2, \"parallel\": true"},
    {"dlrm", DEEP ", \"bottom\": [6], \"self_interaction\": true"},
    {"autoint",
     DEEP ", \"attention\": [6], \"heads\": 3, \"no_residual\": true"},
    {"share_bottom", DEEP ", \"bottom\": [6]"},
    {"mmoe", DEEP ", \"experts\": 3, \"expert_units\": 5"},
    {"ple", DEEP ", \"experts\": 2, \"shared_experts\": 1, \"levels\": 2, "
                 "\"expert_units\": 5"},
    {"esmm", DEEP ", \"rows\": 1000"},
};

static const fl_model_kind *kind_of(const char *name)
{
    const fl_model_kind *m = fl_model_kinds;

    while (m->name && strcmp(m->name, name) != 0)
        m++;
    CHECK(m->name != NULL);
    return m;
}

/* Label, a second one, and the slots of scene_file(), whose text is without the
 * second one. */
static const char *file_of(const char *name, bool two)
{
    char *text = malloc(60000);
    const char *path;
    size_t used = 0;

    for (int i = 0; i < 300; i++) {
        float a = kit_noise(i, 1), b = kit_noise(i, 2);
        int u = (i * 7919) % 50, v = (i * 104729) % 20;

        used += (size_t)sprintf(text + used, "1 %d ", (u % 7 < 3) ^ (a > 0.4f));
        if (two)
            used += (size_t)sprintf(text + used, "1 %d ", v % 5 < 2);
        used +=
            (size_t)sprintf(text + used, "3 %.3f %.3f 0.5 1 %d 1 %d 2 %d %d\n",
                            (double)a, (double)b, u, v, i % 30, i % 11);
    }
    path = test_file_bytes(name, text, used);
    free(text);
    return path;
}

/* `weight` is of the second label, where there is one. */
static const char *config_of(const by_config *m, const char *weight)
{
    const fl_ctr_model *ctr = kind_of(m->name)->ctr;
    bool two = ctr->most_tasks > 0;
    const char *file = file_of(two ? "two.txt" : "one.txt", two);
    char text[3000], second[200] = "";

    if (two)
        snprintf(second, sizeof second,
                 "{\"name\": \"z\", \"type\": \"uint64\", \"role\": "
                 "\"label\"%s}, ",
                 weight);
    snprintf(
        text, sizeof text,
        "{\"model\": {\"type\": \"%s\"%s}, \"optimizer\": {\"learning_rate\": "
        "0.02}, \"epochs\": 6, \"seed\": 3, \"save\": \"%s\", \"dataset\": "
        "{\"format\": \"multislot\", \"train\": [\"%s\"], \"test\": [\"%s\"], "
        "\"batch_size\": 32}, \"slots\": [{\"name\": \"y\", \"type\": \"%s\", "
        "\"role\": \"label\"}, %s{\"name\": \"dense\", \"type\": \"float\", "
        "\"dim\": 3}, {\"name\": \"u\", \"type\": \"uint64\"}, {\"name\": "
        "\"v\", \"type\": \"uint64\", \"table\": \"other\"}, {\"name\": \"w\", "
        "\"type\": \"uint64\", \"dim\": -1}]}",
        m->name, m->keys, test_path(m->name), file, file,
        ctr->classes ? "uint64" : "float", second);
    return test_file("config.json", text);
}

static char *train(const char *config)
{
    fleet_config_options o = {.log_level = FLEET_LOG_SILENT};
    fleet_status status;
    char *line = NULL;

    status = fleet_train_from_config(config, &o, &line);
    if (status != FLEET_OK)
        test_fail(__FILE__, __LINE__, "%s", fleet_last_error());
    return line;
}

static double number_at(const fl_at *at, const char *key)
{
    fl_at one = fl_at_key(at, key);
    double x = -1;

    fl_at_double(&one, -1e300, 1e300, &x);
    return x;
}

/* What was trained is evaluated on itself. */
static void check_line(const by_config *m, const char *line)
{
    fl_json *json;

    CHECK_OK(fl_json_parse(line, strlen(line), "the closing line", &json));
    fl_at root = fl_at_root(json), tasks = fl_at_key(&root, "tasks");
    const char *name;
    fl_at model = fl_at_key(&root, "model");

    CHECK_OK(fl_at_string(&model, &name));
    CHECK_TEXT(name, m->name);
    if (!(number_at(&root, "auc") > 0.6))
        test_fail(__FILE__, __LINE__, "%s", line);
    CHECK_INT(fl_at_count(&tasks), kind_of(name)->ctr->most_tasks > 0 ? 2 : 0);
    if (fl_at_count(&tasks) > 0) {
        fl_at first = fl_at_index(&tasks, 0), second = fl_at_index(&tasks, 1);
        fl_at label = fl_at_key(&second, "label");

        CHECK_OK(fl_at_string(&label, &name));
        CHECK_TEXT(name, "z");
        CHECK_NEAR(number_at(&first, "auc"), number_at(&root, "auc"), 0);
        CHECK(number_at(&second, "auc") > 0.6 &&
              number_at(&second, "auc") != number_at(&first, "auc"));
        CHECK(number_at(&second, "logloss") > 0 &&
              number_at(&second, "accuracy") > 0.5);
    }
    fl_json_free(json);
}

TEST(each_model_is_trained_evaluated_and_saved)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char *line = train(config_of(&models[i], ""));
        fleet_predictor *p;

        check_line(&models[i], line);
        p = fleet_load_inference_model(test_path(models[i].name));
        if (!p)
            test_fail(__FILE__, __LINE__, "%s: %s", models[i].name,
                      fleet_last_error());
        fleet_predictor_destroy(p);
        fleet_free(line);
    }
}

TEST(each_model_of_the_list_is_tried_here)
{
    for (const fl_model_kind *m = fl_model_kinds; m->name; m++) {
        bool found = !m->ctr || m->ctr->ids; /* other tests have these */

        for (size_t i = 0; i < sizeof models / sizeof *models; i++)
            found = found || strcmp(models[i].name, m->name) == 0;
        if (!found)
            test_fail(__FILE__, __LINE__, "%s is tried nowhere", m->name);
    }
}

/* 1 is what it is without it. */
TEST(a_loss_weight_is_that_of_its_label)
{
    const by_config *m = &models[12];
    char *both = train(config_of(m, "")), *half, *same;

    half = train(config_of(m, ", \"loss_weight\": 0.5"));
    same = train(config_of(m, ", \"loss_weight\": 1"));
    CHECK_TEXT(strstr(same, "params_hash"), strstr(both, "params_hash"));
    CHECK(strcmp(strstr(half, "params_hash"), strstr(both, "params_hash")) !=
          0);
    fleet_free(both);
    fleet_free(half);
    fleet_free(same);
}

static void check_hashes(const char *a, const char *b, bool equal)
{
    CHECK((strcmp(strstr(a, "params_hash"), strstr(b, "params_hash")) == 0) ==
          equal);
}

/* 1 is what it is without it; of classes only the ratio counts, to the bit if
 * it is of powers of 2. */
TEST(weights_of_labels_are_those_of_their_samples)
{
    static const by_config one[] = {{"fm", ""},
                                    {"fm", ", \"pos_weight\": 1"},
                                    {"fm", ", \"pos_weight\": 4"}},
                           two[] = {
                               {"ctr_dnn", ", \"class_weights\": [1, 4]"},
                               {"ctr_dnn", ", \"class_weights\": [0.5, 2]"},
                               {"ctr_dnn", ", \"class_weights\": [1, 1]"}};
    const by_config *m = &models[12];
    char *line[9];

    for (int i = 0; i < 3; i++) {
        line[i] = train(config_of(&one[i], ""));
        line[3 + i] = train(config_of(&two[i], ""));
    }
    line[6] = train(config_of(m, ""));
    line[7] = train(config_of(m, ", \"pos_weight\": 1"));
    line[8] = train(config_of(m, ", \"pos_weight\": 4"));
    for (int i = 0; i < 9; i += 3) {
        check_hashes(line[i], line[i + 1], true);
        check_hashes(line[i], line[i + 2], false);
    }
    for (int i = 0; i < 9; i++)
        fleet_free(line[i]);
}

/* --- what is refused ------------------------------------------------------ */

#define LABEL(name, more)                                                      \
    "{\"name\": \"" name "\", \"type\": \"float\", \"role\": \"label\"" more   \
    "}, "
#define ALL(type, keys, labels)                                                \
    "{\"model\": {\"type\": \"" type "\"" keys "}, \"dataset\": {\"format\": " \
    "\"multislot\", \"train\": [\"a\"]}, \"slots\": [" labels                  \
    "{\"name\": \"u\", \"type\": \"uint64\"}]}"

static void refused(const char *text, const char *words)
{
    fl_config c;
    fleet_status status = fl_config_read(&c, text, strlen(text), "f.json");

    fl_config_done(&c);
    CHECK_FAILS(status, FLEET_ECONFIG, words);
}

TEST(keys_of_other_models_are_refused_by_name)
{
    refused(ALL("fm", ", \"hidden\": [4]", LABEL("y", "")),
            "model.hidden: expected nothing: model fm has no hidden");
    refused(ALL("dcn", ", \"low_rank\": 4", LABEL("y", "")),
            "model.low_rank: expected nothing: model dcn has no low_rank");
    refused(ALL("deepfm", ", \"clases\": 4", LABEL("y", "")),
            "model.clases: unknown key; expected one of: type, ps, rows");
    refused(ALL("ctr_dnn", ", \"pos_weight\": 4", LABEL("y", "")),
            "model.pos_weight: expected nothing: model ctr_dnn has no");
    refused(ALL("fm", ", \"pos_weight\": 0", LABEL("y", "")),
            "model.pos_weight: expected a number from 1e-06 to 1000000, got 0");
    refused(ALL("fm", ", \"class_weights\": [1, 2]", LABEL("y", "")),
            "model.class_weights: expected nothing: model fm has no");
    refused(ALL("ctr_dnn", ", \"class_weights\": 4", LABEL("y", "")),
            "model.class_weights: expected an array of 1 to 512 numbers");
    refused(ALL("ctr_dnn", ", \"class_weights\": [1, 0]", LABEL("y", "")),
            "model.class_weights[1]: expected a number from 1e-06");
    refused(ALL("autoint", ", \"head\": 4", LABEL("y", "")),
            "model.head: unknown key: did you mean \"heads\"?");
    refused(ALL("autoint", ", \"heads\": 0", LABEL("y", "")),
            "model.heads: expected an integer from 1 to 1024, got 0");
    refused(ALL("xdeepfm", ", \"cin\": 4", LABEL("y", "")),
            "model.cin: expected an array of up to 64 numbers of units");
    refused(ALL("dlrm", ", \"self_interaction\": 1", LABEL("y", "")),
            "model.self_interaction: expected true or false");
}

TEST(labels_are_as_many_as_the_model_has_tasks)
{
    refused(ALL("mmoe", "", LABEL("y", "")),
            "slots: model mmoe: expected 2 to 8 slots with \"role\": "
            "\"label\", got 1");
    refused(ALL("esmm", "", LABEL("a", "") LABEL("b", "") LABEL("c", "")),
            "slots: model esmm: expected 2 to 2 slots");
    refused(ALL("dcn", "", LABEL("a", "") LABEL("b", "")),
            "slots: expected one slot with \"role\": \"label\", got 2");
    refused(ALL("dcn", "", LABEL("y", ", \"loss_weight\": 2")),
            "slots[0].loss_weight: expected nothing: model dcn has one label");
    refused(ALL("dcn", "", LABEL("y", ", \"pos_weight\": 2")),
            "slots[0].pos_weight: expected nothing: of model dcn");
    refused("{\"model\": {\"type\": \"mlp\"}, \"dataset\": {\"format\": "
            "\"multislot\", \"train\": [\"a\"]}, \"slots\": [{\"name\": \"y\", "
            "\"type\": \"uint64\", \"role\": \"label\", \"loss_weight\": 2}, "
            "{\"name\": \"x\", \"type\": \"float\"}]}",
            "slots[0].loss_weight: expected nothing: model mlp has one label");
    refused(ALL("ple", "", LABEL("a", "") LABEL("b", ", \"loss_weight\": 0")),
            "slots[1].loss_weight: expected a number from 1e-09");
    refused("{\"model\": {\"type\": \"ple\"}, \"dataset\": {\"format\": "
            "\"multislot\", \"train\": [\"a\"]}, \"slots\": [{\"name\": \"u\", "
            "\"type\": \"uint64\", \"loss_weight\": 2}]}",
            "slots[0].loss_weight: expected nothing: it is for a label");
}
