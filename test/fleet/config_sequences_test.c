/* config_sequences_test.c - models whose slots have roles by a configuration:
 * each trains as the same model made in C, is evaluated, and is saved; and
 * roles that are no good. */
#define SUITE config_sequences
#include "history_kit.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "fleet/config/models.h"

typedef struct by_config {
    const fl_ctr_model *model;
    const char *keys;    /* of `model`, beside its type */
    fleet_ctr_options o; /* the same */
} by_config;

static const int64_t eight[] = {8}, six[] = {6};

#define SMALL      .embedding_dim = 4, .max_len = 5
#define SMALL_KEYS ", \"embedding_dim\": 4, \"max_len\": 5"
#define TOWER      .embedding_dim = 4, .hidden = eight, .n_hidden = 1
#define TOWER_KEYS ", \"embedding_dim\": 4, \"hidden\": [8]"
#define DEEP       SMALL, .hidden = eight, .n_hidden = 1
#define DEEP_KEYS  SMALL_KEYS ", \"hidden\": [8]"

static const by_config models[] = {
    {&fl_model_din,
     DEEP_KEYS ", \"attention\": [6]",
     {DEEP, .attention = six, .n_attention = 1}},
    {&fl_model_bst,
     DEEP_KEYS ", \"heads\": 2, \"ffn_units\": 6",
     {DEEP, .heads = 2, .ffn_units = 6}},
    {&fl_model_sasrec, SMALL_KEYS ", \"blocks\": 3", {SMALL, .blocks = 3}},
    {&fl_model_two_tower,
     TOWER_KEYS ", \"temperature\": 0.5, \"normalize\": true",
     {TOWER, .temperature = 0.5f, .normalize = 1}},
    {&fl_model_youtube_dnn, TOWER_KEYS, {TOWER}},
    {&fl_model_dien,
     DEEP_KEYS ", \"attention\": [6]",
     {DEEP, .attention = six, .n_attention = 1}},
    {&fl_model_gru4rec, SMALL_KEYS, {SMALL}},
    {&fl_model_word2vec, ", \"embedding_dim\": 4", {.embedding_dim = 4}},
};

enum { N_MODEL = sizeof models / sizeof *models };

/* In the order of the file. */
static const char *slots_of(const fl_ctr_model *m)
{
    static char text[1000];
    size_t n = (size_t)snprintf(text, sizeof text,
                                "{\"name\": \"label\", \"type\": \"float\", "
                                "\"role\": \"label\"}");

    for (int i = 0; i < 4; i++) {
        const fleet_id_slot *s = &history_slots[i];

        if (!history_has(m, s))
            continue;
        n += (size_t)snprintf(
            text + n, sizeof text - n,
            ", {\"name\": \"%s\", \"type\": \"uint64\", \"dim\": %d, "
            "\"table\": \"%s\"",
            s->name, s->dim ? (int)s->dim : 1, s->table);
        n += (size_t)snprintf(text + n, sizeof text - n,
                              s->role ? ", \"role\": \"%s\"}" : "%.0s}",
                              fl_slot_role_names[s->role]);
    }
    return text;
}

static const char *config_of(const by_config *m)
{
    const char *file =
        history_file("a.txt", m->model, 300, 1, HISTORY_HAS, NULL);
    char text[3000];

    snprintf(text, sizeof text,
             "{\"model\": {\"type\": \"%s\"%s}, \"optimizer\": "
             "{\"learning_rate\": 0.01}, \"epochs\": 2, \"seed\": 7, \"save\": "
             "\"%s\", \"dataset\": {\"format\": \"multislot\", \"train\": "
             "[\"%s\"], \"test\": [\"%s\"], \"batch_size\": 64}, \"slots\": "
             "[%s]}",
             m->model->name, m->keys, test_path(m->model->name), file, file,
             slots_of(m->model));
    return test_file("config.json", text);
}

static void check_hash(const by_config *m, const char *line)
{
    char hash[40];
    scene s;

    history_open(&s, &(fleet_options){.seed = 7, .num_threads = 1}, m->model,
                 m->o, 0.01f, NULL);
    history_data(&s, test_path("a.txt"), 64);
    scene_train(&s, 2);
    snprintf(hash, sizeof hash, "\"params_hash\":\"%016llx\"",
             (unsigned long long)scene_hash(&s));
    scene_close(&s);
    CHECK_CONTAINS(line, hash);
}

TEST(each_model_trains_as_the_one_made_in_c_and_is_saved)
{
    for (int i = 0; i < N_MODEL; i++) {
        const char *config = config_of(&models[i]);
        fleet_config_options o = {.log_level = FLEET_LOG_SILENT};
        fleet_predictor *p;
        char *line = NULL;

        if (fleet_train_from_config(config, &o, &line) != FLEET_OK)
            test_fail(__FILE__, __LINE__, "%s", fleet_last_error());
        check_hash(&models[i], line);
        CHECK_CONTAINS(line, "\"auc\":0.");
        p = fleet_load_inference_model(test_path(models[i].model->name));
        CHECK(p != NULL);
        fleet_predictor_destroy(p);
        fleet_free(line);
    }
}

TEST(each_model_of_the_list_is_tried_here)
{
    for (const fl_model_kind *m = fl_model_kinds; m->name; m++) {
        bool found = !m->ctr || !m->ctr->ids; /* other tests have these */

        for (int i = 0; i < N_MODEL; i++)
            found = found || models[i].model == m->ctr;
        if (!found)
            test_fail(__FILE__, __LINE__, "%s is tried nowhere", m->name);
    }
}

/* --- what is refused ------------------------------------------------------ */

#define ALL(type, keys, slots)                                                 \
    "{\"model\": {\"type\": \"" type "\"" keys "}, \"dataset\": {\"format\": " \
    "\"multislot\", \"train\": [\"a\"]}, \"slots\": [{\"name\": \"y\", "       \
    "\"type\": \"float\", \"role\": \"label\"}, " slots "]}"
#define SLOT(name, role, more)                                                 \
    "{\"name\": \"" name "\", \"type\": \"uint64\", \"role\": \"" role         \
    "\"" more "}"
#define HISTORY SLOT("h", "history", ", \"dim\": -1")
#define ITEM    SLOT("i", "item", "")

static void refused(const char *text, const char *words)
{
    fl_config c;
    fleet_status status = fl_config_read(&c, text, strlen(text), "f.json");

    fl_config_done(&c);
    CHECK_FAILS(status, FLEET_ECONFIG, words);
}

TEST(roles_that_cannot_be_are_refused_by_name)
{
    refused(ALL("din", "", ITEM),
            "slots: din: expected 1 to 16 slots of role \"history\", got 0");
    refused(
        ALL("din", "",
            HISTORY ", " SLOT("k", "history", ", \"dim\": -1") ", " ITEM),
        "slots: din: expected an \"item\" for each \"history\", in the same "
        "order, got 1 and 2");
    refused(
        ALL("fm", "", HISTORY ", " ITEM),
        "slots[1].role: fm: h: expected no \"history\", the model has none");
    refused(ALL("din", "", SLOT("h", "history", "") ", " ITEM),
            "slots[1].role: din: h: expected dim -1 of a \"history\", got 1");
    refused(ALL("din", "",
                SLOT("h", "history",
                     ", \"dim\": -1, \"combiner\": \"mean\"") ", " ITEM),
            "slots[1].role: din: h: expected no combiner of a \"history\"");
    refused(ALL("din", "", HISTORY ", " SLOT("i", "item", ", \"dim\": 2")),
            "slots[2].role: din: i: expected dim 1 of an \"item\", got 2");
    refused(ALL("din", "",
                "{\"name\": \"h\", \"type\": \"float\", \"role\": "
                "\"history\"}"),
            "slots[1].role: expected \"label\", \"weight\", \"log_q\" or "
            "\"draw\": others "
            "are of slots of type \"uint64\"");
    refused(ALL("din", "", SLOT("h", "histry", "")),
            "slots[1].role: expected one of \"label\", \"weight\", \"log_q\", "
            "\"draw\", \"history\", \"item\", \"negative\", got \"histry\"");
    refused(ALL("sasrec", "",
                HISTORY ", " ITEM ", {\"name\": \"x\", \"type\": "
                        "\"float\"}"),
            "slots[3].role: sasrec: x: expected a \"history\" or an \"item\"");
    refused(ALL("din", ", \"max_len\": 0", HISTORY ", " ITEM),
            "model.max_len: expected an integer from 1 to 65536, got 0");
    refused(ALL("mlp", ", \"classes\": 2", HISTORY),
            "beside its label an mlp reads one slot of floats");
}

#define PAIRS(type, test, slots)                                               \
    "{\"model\": {\"type\": \"" type "\"}, \"dataset\": {\"format\": "         \
    "\"multislot\", \"train\": [\"a\"]" test "}, \"slots\": [" slots "]}"
#define USER "{\"name\": \"u\", \"type\": \"uint64\"}"
#define LOG_Q(name, type)                                                      \
    "{\"name\": \"" name "\", \"type\": \"" type "\", \"role\": \"log_q\"}"

static void accepted(const char *text)
{
    fl_config c;
    fleet_status status = fl_config_read(&c, text, strlen(text), "f.json");

    fl_config_done(&c);
    CHECK_OK(status);
}

TEST(pairs_need_no_label_unless_they_are_evaluated)
{
    accepted(PAIRS("two_tower", "", USER ", " ITEM ", " LOG_Q("q", "float")));
    refused(PAIRS("two_tower", ", \"test\": [\"a\"]", USER ", " ITEM),
            "slots: expected one slot with \"role\": \"label\", by which "
            "dataset.test is evaluated, or `metrics`, got 0");
    refused(PAIRS("din", "", HISTORY ", " ITEM),
            "slots: expected one slot with \"role\": \"label\", got 0");
    refused(
        ALL("din", "", HISTORY ", " ITEM ", " LOG_Q("q", "float")),
        "slots: expected no slot with \"role\": \"log_q\" of model din, got "
        "1");
    refused(
        PAIRS("two_tower", "",
              USER ", " ITEM ", " LOG_Q("q", "float") ", " LOG_Q("r", "float")),
        "slots: expected at most one slot with \"role\": \"log_q\" of model "
        "two_tower, got 2");
    refused(PAIRS("two_tower", "", USER ", " ITEM ", " LOG_Q("q", "uint64")),
            "slots[2].role: expected another one: log_q is a slot of type "
            "\"float\" and dim 1");
    refused(PAIRS("two_tower", "", ITEM),
            "slots: two_tower: expected 1 to 10000 slots of role \"feature\", "
            "got 0");
}
