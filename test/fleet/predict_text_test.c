/* predict_text_test.c - lines of text scored by a saved model: the bits of its
 * evaluation, whatever the format, with the label or without; what a line, a
 * text or a save is refused for. */
#define SUITE predict_text
#include "lines_kit.h"
#include "test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"

static const lines_format formats[] = {
    LINES_CSV,       LINES_HEADER,   LINES_CRITEO,
    LINES_MULTISLOT, LINES_LIBSVM,   LINES_SLOT_TEXT,
    LINES_JSON,      LINES_TFRECORD, LINES_MADE};
enum { N_FORMAT = sizeof formats / sizeof *formats };

static int64_t score(fleet_predictor *p, const char *text, size_t size,
                     fleet_label_use use, float *to, int most)
{
    int64_t rows = -1;

    CHECK_OK(fleet_predictor_run_text(p, text, size, use, (void *[]){to},
                                      (size_t[]){(size_t)most * sizeof(float)},
                                      1, &rows));
    return rows;
}

static void check_scores(const lines_scene *s, fleet_predictor *p,
                         const char *text, size_t size, fleet_label_use use)
{
    float got[LINES_N];

    memset(got, 0, sizeof got);
    CHECK_INT(score(p, text, size, use, got, LINES_N), LINES_N);
    CHECK(memcmp(got, s->want, sizeof got) == 0);
}

TEST(scores_have_the_bits_of_the_evaluation_in_each_format)
{
    for (int i = 0; i < N_FORMAT; i++) {
        lines_scene s;
        fleet_predictor *p;

        lines_open(&s, formats[i]);
        p = lines_predictor(&s);
        check_scores(&s, p, s.text, s.size, FLEET_LABEL_UNREAD);
        check_scores(&s, p, s.text, s.size, FLEET_LABEL_READ);
        check_scores(&s, p, s.text, s.size,
                     FLEET_LABEL_UNREAD); /* memory again */
        fleet_predictor_destroy(p);
        lines_close(&s);
    }
}

TEST(lines_without_the_label_have_the_same_scores)
{
    for (int i = 0; i < N_FORMAT; i++) {
        lines_scene s;
        fleet_predictor *p;
        size_t size;
        char *text;

        lines_open(&s, formats[i]);
        p = lines_predictor(&s);
        text = lines_unlabelled(&s, &size);
        CHECK(size < s.size);
        check_scores(&s, p, text, size, FLEET_LABEL_ABSENT);
        free(text);
        fleet_predictor_destroy(p);
        lines_close(&s);
    }
}

/* Each as a call of its own; the last one without its newline. */
TEST(one_line_at_a_time_scores_alike)
{
    lines_scene s;
    fleet_predictor *p;
    const char *at;
    int n = 0;

    lines_open(&s, LINES_CRITEO);
    p = lines_predictor(&s);
    for (at = s.text; *at; n++) {
        const char *end = strchr(at, '\n');
        float got = -1;

        CHECK_INT(score(p, at, (size_t)(end - at), FLEET_LABEL_UNREAD, &got, 1),
                  1);
        CHECK(memcmp(&got, &s.want[n], sizeof got) == 0);
        at = end + 1;
    }
    CHECK_INT(n, LINES_N);
    fleet_predictor_destroy(p);
    lines_close(&s);
}

/* More than is read at once. */
TEST(a_text_of_megabytes_is_read_whole)
{
    enum { TIMES = 80 };
    static float got[TIMES * LINES_N];
    lines_scene s;
    fleet_predictor *p;
    size_t size;
    char *text;

    lines_open(&s, LINES_CRITEO);
    p = lines_predictor(&s);
    size = strlen(s.text);
    text = malloc(TIMES * size);
    for (int i = 0; i < TIMES; i++)
        memcpy(text + (size_t)i * size, s.text, size);
    CHECK(TIMES * size > 1 << 21);
    CHECK_INT(
        score(p, text, TIMES * size, FLEET_LABEL_UNREAD, got, TIMES * LINES_N),
        TIMES * LINES_N);
    for (int i = 0; i < TIMES; i++)
        CHECK(memcmp(got + i * LINES_N, s.want, sizeof s.want) == 0);
    free(text);
    fleet_predictor_destroy(p);
    lines_close(&s);
}

TEST(a_csv_label_that_is_not_read_may_be_anything)
{
    static const char lines[] = "?,3,red,4,x\n,3,red,4,x\n\"\",3,red,4,x\n";
    lines_scene s;
    fleet_predictor *p;
    float got[3];
    int64_t rows;

    lines_open(&s, LINES_CSV);
    p = lines_predictor(&s);
    CHECK_INT(score(p, lines, strlen(lines), FLEET_LABEL_UNREAD, got, 3), 3);
    CHECK(got[0] > 0 && got[0] < 1);
    CHECK(memcmp(&got[0], &got[1], 4) == 0 && memcmp(&got[0], &got[2], 4) == 0);
    CHECK_FAILS(fleet_predictor_run_text(p, lines, strlen(lines),
                                         FLEET_LABEL_READ, (void *[]){got},
                                         (size_t[]){sizeof got}, 1, &rows),
                FLEET_EFORMAT,
                "text:1: slot \"label\": expected a cell that is there");
    CHECK_INT(rows, 0);
    fleet_predictor_destroy(p);
    lines_close(&s);
}

TEST(no_text_and_empty_lines_have_no_scores)
{
    lines_scene s;
    fleet_predictor *p;
    float got = 7;

    lines_open(&s, LINES_MULTISLOT);
    p = lines_predictor(&s);
    CHECK_INT(score(p, NULL, 0, FLEET_LABEL_UNREAD, &got, 0), 0);
    CHECK_INT(score(p, "\n \n\r\n", 5, FLEET_LABEL_UNREAD, &got, 0), 0);
    CHECK(got == 7);
    fleet_predictor_destroy(p);
    lines_close(&s);
}

static void refuse(fleet_predictor *p, const char *text, fleet_label_use use,
                   fleet_status code, const char *words)
{
    float got[3];

    CHECK_FAILS(fleet_predictor_run_text(p, text, strlen(text), use,
                                         (void *[]){got},
                                         (size_t[]){sizeof got}, 1, NULL),
                code, words);
}

TEST(a_line_that_does_not_fit_is_named)
{
    lines_scene s;
    fleet_predictor *p;

    lines_open(&s, LINES_CSV);
    p = lines_predictor(&s);
    refuse(p, "no,1,red,2,x\nno,1e,red,2,x\n", FLEET_LABEL_UNREAD,
           FLEET_EFORMAT,
           "text:2: slot \"numbers\": expected a finite number, got \"1e\"");
    refuse(p, "no,1,red,-3,x\n", FLEET_LABEL_UNREAD, FLEET_EFORMAT,
           "a number above -1, for log1p");
    refuse(p, "no,1,red\n", FLEET_LABEL_UNREAD, FLEET_EFORMAT,
           "4 cells or more (3 here)");
    refuse(p, "no,1,x,2,x\nno,1,x,2,x\nno,1,x,2,x\nno,1,x,2,x\n",
           FLEET_LABEL_UNREAD, FLEET_ESHAPE,
           "is 16 bytes for 4 samples, but there is room for 12");
    refuse(p, "no,1,x,2,x\n", (fleet_label_use)3, FLEET_EINVAL,
           "use 3 of the label does not exist");
    fleet_predictor_destroy(p);
    lines_close(&s);
    lines_open(&s, LINES_HEADER);
    p = lines_predictor(&s);
    refuse(p, "-\nx;size;word\n1;2;x\n", FLEET_LABEL_UNREAD, FLEET_EFORMAT,
           "text: its header has no column \"color\"");
    fleet_predictor_destroy(p);
    lines_close(&s);
    lines_open(&s, LINES_CRITEO);
    p = lines_predictor(&s);
    refuse(p, "1\t2\n", FLEET_LABEL_UNREAD, FLEET_EFORMAT,
           "text:1: expected 40 cells split by tabs (2 here), got \"1?2\"");
    refuse(p, "1\t2\n", FLEET_LABEL_ABSENT, FLEET_EFORMAT,
           "text:1: expected 39 cells split by tabs (2 here), got \"1?2\"");
    fleet_predictor_destroy(p);
    lines_close(&s);
}

/* --- many threads --------------------------------------------------------- */

typedef struct caller {
    const lines_scene *s;
    fleet_predictor *p;
    fleet_label_use use;
    int same;
} caller;

static void *call_often(void *arg)
{
    caller *c = arg;
    float got[LINES_N];
    int64_t rows;

    for (int i = 0; i < 10; i++) {
        memset(got, 0, sizeof got);
        if (fleet_predictor_run_text(
                c->p, c->s->text, strlen(c->s->text), c->use, (void *[]){got},
                (size_t[]){sizeof got}, 1, &rows) == FLEET_OK &&
            rows == LINES_N && memcmp(got, c->s->want, sizeof got) == 0)
            c->same++;
    }
    return NULL;
}

TEST(any_number_of_threads_may_call)
{
    lines_scene s;
    pthread_t thread[4];
    caller c[4];
    fleet_predictor *p;

    lines_open(&s, LINES_HEADER);
    p = lines_predictor(&s);
    for (int i = 0; i < 4; i++) {
        c[i] =
            (caller){&s, p, i % 2 ? FLEET_LABEL_READ : FLEET_LABEL_UNREAD, 0};
        CHECK(pthread_create(&thread[i], NULL, call_often, &c[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        CHECK_INT(c[i].same, 10);
    }
    fleet_predictor_destroy(p);
    lines_close(&s);
}

/* --- saves ---------------------------------------------------------------- */

TEST(a_model_that_was_saved_without_a_dataset_scores_no_text)
{
    lines_scene s;
    fleet_predictor *p;
    fleet_var *feed[3];

    lines_open(&s, LINES_MULTISLOT);
    feed[0] = fleet_program_var(s.p, "numbers");
    feed[1] = fleet_program_var(s.p, "color");
    feed[2] = fleet_program_var(s.p, "word");
    CHECK_OK(fleet_save_inference_model(s.f, test_path("model"), feed, 3,
                                        &s.m.prediction, 1));
    p = fleet_load_inference_model(test_path("model"));
    refuse(p, "x", FLEET_LABEL_UNREAD, FLEET_EINVAL,
           "the model does not know how lines are read: expected one that "
           "fleet-train has saved");
    fleet_predictor_destroy(p);
    CHECK_OK(fleet_save_inference_model_with(
        s.f, test_path("model"), feed, 3, &s.m.prediction, 1,
        &(fleet_inference_options){.dataset = s.data}));
    p = fleet_load_inference_model(test_path("model"));
    check_scores(&s, p, s.text, s.size, FLEET_LABEL_UNREAD);
    refuse(p, s.text, FLEET_LABEL_READ, FLEET_EINVAL,
           "the model does not know which slot is the label");
    fleet_predictor_destroy(p);
    lines_close(&s);
}

static void refuse_save(lines_scene *s, const fleet_slot *slot, int n,
                        const char *label, fleet_status code, const char *words)
{
    fleet_inference_options o = {.label = label};
    fleet_var *feed[3];

    feed[0] = fleet_program_var(s->p, "numbers");
    feed[1] = fleet_program_var(s->p, "color");
    feed[2] = fleet_program_var(s->p, "word");
    o.dataset = s->data;
    if (slot)
        o.dataset = fleet_queue_dataset(
            s->f, &(fleet_dataset_options){.slots = slot, .n_slot = n});
    CHECK(o.dataset != NULL);
    CHECK_FAILS(fleet_save_inference_model_with(s->f, test_path("model"), feed,
                                                3, &s->m.prediction, 1, &o),
                code, words);
    CHECK(!fl_file_exists(test_path("model")));
}

TEST(a_dataset_that_cannot_feed_the_model_is_refused_as_it_is_saved)
{
    const fleet_slot few[] = {{.name = "numbers", .dim = 2},
                              {.name = "color", .dtype = FLEET_INT64}};
    const fleet_slot other[] = {{.name = "numbers", .dim = 3},
                                {.name = "color", .dtype = FLEET_INT64},
                                {.name = "word", .dtype = FLEET_INT64}};
    lines_scene s, criteo;
    fleet_dataset *none;

    lines_open(&s, LINES_MULTISLOT);
    refuse_save(&s, few, 2, NULL, FLEET_ENOENT,
                "no slot of the dataset feeds \"word\"");
    refuse_save(&s, other, 3, NULL, FLEET_ESHAPE,
                "slot \"numbers\" has 3 values per sample");
    refuse_save(&s, NULL, 0, "click", FLEET_ENOENT,
                "the dataset has no slot \"click\", for a label");
    lines_open(&criteo, LINES_CRITEO);
    none = fleet_queue_dataset(
        criteo.f, &(fleet_dataset_options){.format = FLEET_CRITEO});
    CHECK_FAILS(fleet_save_inference_model_with(
                    s.f, test_path("model"),
                    (fleet_var *[]){fleet_program_var(s.p, "numbers"),
                                    fleet_program_var(s.p, "color"),
                                    fleet_program_var(s.p, "word")},
                    3, &s.m.prediction, 1,
                    &(fleet_inference_options){.dataset = none}),
                FLEET_EINVAL, "the dataset is another handle's");
    lines_close(&criteo);
    lines_close(&s);
}

/* Another text in the manifest, with the sum that it has then. */
static void change_manifest(const char *from, const char *to)
{
    char path[2000], sum[20], *text, *at, *all;
    size_t size;

    snprintf(path, sizeof path, "%s/manifest.json", test_path("model"));
    CHECK_OK(fl_file_read(path, &text, &size));
    at = strstr(text, from);
    if (!at)
        test_fail(__FILE__, __LINE__, "no %s in %s", from, text);
    all = malloc(size + strlen(to) + 1);
    sprintf(all, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    test_file("model/manifest.json", all);
    snprintf(sum, sizeof sum, "%016llx\n",
             (unsigned long long)fl_hash(all, strlen(all), 0));
    test_file("model/manifest.xxh64", sum);
    free(all);
    fl_free(text);
}

TEST(a_save_that_says_something_else_of_its_lines_is_refused)
{
    static const struct {
        const char *from, *to, *words;
    } wrong[] = {
        {"\"csv\"", "\"xml\"", "reader.format: expected one of"},
        {"\"hash\"", "\"mash\"", "expected one of"},
        {"\"label\":", "\"lapel\":", "reader.lapel: unknown key"},
        {"\"piped\":", "\"separator\":\t300, \"piped\":", "reader.separator"},
        {"\"seed\":\t3", "\"seed\":\t-1", "reader.slots[3].seed"},
        {"\"mean\":\t[", "\"mean\":\t[1, ", "as many numbers"},
    };
    lines_scene s;

    lines_open(&s, LINES_CSV);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        lines_saved(&s);
        change_manifest(wrong[i].from, wrong[i].to);
        CHECK(fleet_load_inference_model(test_path("model")) == NULL);
        CHECK_CONTAINS(fleet_last_error(), wrong[i].words);
    }
    lines_close(&s);
}

/* What texts are hashed with is the save's, not the slot's place. */
TEST(the_seed_of_a_hash_is_the_saves)
{
    lines_scene s;
    fleet_predictor *p;
    float got[LINES_N];

    lines_open(&s, LINES_CSV);
    lines_saved(&s);
    change_manifest("\"seed\":\t3", "\"seed\":\t9");
    p = fleet_load_inference_model(test_path("model"));
    CHECK(p != NULL);
    CHECK_INT(
        score(p, s.text, strlen(s.text), FLEET_LABEL_UNREAD, got, LINES_N),
        LINES_N);
    CHECK(memcmp(got, s.want, sizeof got) != 0);
    fleet_predictor_destroy(p);
    lines_close(&s);
}
