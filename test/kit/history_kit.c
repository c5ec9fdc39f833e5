/* history_kit.c - see history_kit.h. */
#define SUITE history_kit
#include "history_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LENGTH = 6 };

const fleet_id_slot history_slots[4] = {
    {.name = "history",
     .dim = -1,
     .table = "items",
     .role = FLEET_SLOT_HISTORY},
    {.name = "item", .table = "items", .role = FLEET_SLOT_ITEM},
    {.name = "user", .table = "users"},
    {.name = "negative",
     .dim = -1,
     .table = "items",
     .role = FLEET_SLOT_NEGATIVE}};

static const fleet_slot file_slots[] = {
    {.name = "label", .dtype = FLEET_FLOAT32, .dim = 1},
    {.name = "history", .dtype = FLEET_INT64, .dim = -1},
    {.name = "item", .dtype = FLEET_INT64, .dim = 1},
    {.name = "user", .dtype = FLEET_INT64, .dim = 1},
    {.name = "negative", .dtype = FLEET_INT64, .dim = -1}};

enum { N_SLOT = sizeof file_slots / sizeof *file_slots };

typedef struct user_sample {
    int label, likely, n, history[MOST_LENGTH], item, user;
} user_sample;

static int draw(unsigned *state, int below)
{
    *state = *state * 1664525u + 1013904223u;
    return (int)((*state >> 8) % (unsigned)below);
}

static int item_of(unsigned *state, int topic)
{
    return topic + HISTORY_TOPICS * draw(state, HISTORY_ITEMS / HISTORY_TOPICS);
}

static void draw_history(unsigned *state, user_sample *s)
{
    int topic = draw(state, HISTORY_TOPICS);

    s->n = 1 + draw(state, MOST_LENGTH);
    for (int i = 0; i < s->n; i++) {
        s->history[i] = item_of(state, topic);
        topic = draw(state, 8) == 0 ? draw(state, HISTORY_TOPICS)
                                    : (topic + 1) % HISTORY_TOPICS;
    }
}

static int is_liked(const user_sample *s, history_rule rule)
{
    const int topic = s->item % HISTORY_TOPICS;
    int has = 0;

    if (rule == HISTORY_USER)
        return topic == s->user % HISTORY_TOPICS;
    if (rule == HISTORY_NEXT)
        return topic == (s->history[s->n - 1] + 1) % HISTORY_TOPICS;
    for (int i = 0; i < s->n; i++)
        has |= s->history[i] % HISTORY_TOPICS == topic;
    return has;
}

/* As many that are liked as not, about. */
static void draw_sample(unsigned *state, history_rule rule, user_sample *s)
{
    const int wanted = draw(state, 2);

    draw_history(state, s);
    s->user = draw(state, HISTORY_USERS);
    for (int i = 0; i < 50; i++) {
        s->item = draw(state, HISTORY_ITEMS);
        if (is_liked(s, rule) == wanted)
            break;
    }
    s->likely = is_liked(s, rule);
    s->label = s->likely ^ (draw(state, 10) == 0);
}

/* Of two scores: pairs in order, and half of those that are equal. */
static double auc_of(int n[2][2])
{
    double pairs = (double)(n[1][0] + n[1][1]) * (n[0][0] + n[0][1]);

    return ((double)n[1][1] * n[0][0] +
            ((double)n[1][1] * n[0][1] + (double)n[1][0] * n[0][0]) / 2) /
           pairs;
}

bool history_has(const fl_ctr_model *m, const fleet_id_slot *s)
{
    if (s->role == FLEET_SLOT_FEATURE)
        return !m->no_features;
    if (s->role == FLEET_SLOT_NEGATIVE && !m->pairs)
        return false;
    return m->role[s->role].most > 0;
}

static int put_ids(char *to, unsigned *state, const user_sample *s,
                   const fleet_id_slot *slot)
{
    const bool one =
        slot->role != FLEET_SLOT_HISTORY && slot->role != FLEET_SLOT_NEGATIVE;
    int used = sprintf(to, " %d", one ? 1 : s->n);

    for (int k = 0; k < (one ? 1 : s->n); k++)
        used += sprintf(to + used, " %d",
                        slot->role == FLEET_SLOT_HISTORY ? s->history[k]
                        : slot->role == FLEET_SLOT_ITEM  ? s->item
                        : slot->role == FLEET_SLOT_NEGATIVE
                            ? draw(state, HISTORY_ITEMS)
                            : s->user);
    return used;
}

const char *history_file(const char *name, const fl_ctr_model *model, int lines,
                         int seed, history_rule rule, double *best)
{
    char *text = malloc((size_t)lines * 150 + 1), *to = text;
    unsigned state = (unsigned)seed * 2654435761u + 1;
    int n[2][2] = {{0}}; /* label, likely */
    user_sample s;
    const char *path;

    for (int i = 0; i < lines; i++) {
        draw_sample(&state, rule, &s);
        n[s.label][s.likely]++;
        to += sprintf(to, "1 %d", s.label);
        for (int k = 0; k < N_SLOT - 1; k++)
            if (history_has(model, &history_slots[k]))
                to += put_ids(to, &state, &s, &history_slots[k]);
        *to++ = '\n';
    }
    path = test_file_bytes(name, text, (size_t)(to - text));
    free(text);
    if (best)
        *best = auc_of(n);
    return path;
}

static int choose_slots(const fl_ctr_model *m, fleet_id_slot *to)
{
    int n = 0;

    for (int i = 0; i < N_SLOT - 1; i++)
        if (history_has(m, &history_slots[i]))
            to[n++] = history_slots[i];
    return n;
}

void history_open(scene *s, const fleet_options *options,
                  const fl_ctr_model *model, fleet_ctr_options how, float rate,
                  const fleet_distributed_strategy *strategy)
{
    fleet_id_slot slots[N_SLOT];
    fleet_optimizer *o;

    memset(s, 0, sizeof *s);
    CHECK_OK(fleet_init(&s->f, options));
    s->p = fleet_program_create(s->f);
    how.label_dtype = FLEET_FLOAT32;
    if (!how.ids) {
        how.ids = slots;
        how.n_ids = choose_slots(model, slots);
    }
    fl_ctr_build(s->p, &how, &s->m, model);
    if (fleet_program_status(s->p) != FLEET_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", model->name,
                  fleet_last_error());
    o = fleet_adam(s->f, rate, NULL);
    if (strategy)
        o = fleet_distributed_optimizer(s->f, o, strategy);
    CHECK_OK(fleet_minimize(o, s->m.loss));
}

fleet_dataset *history_dataset(const scene *s, const char *file, int64_t batch)
{
    fleet_slot slots[N_SLOT];
    fleet_dataset_options o = {.batch_size = batch, .slots = slots};
    fleet_dataset *d;

    for (int i = 0; i < N_SLOT; i++)
        if (fleet_program_var(s->p, file_slots[i].name))
            slots[o.n_slot++] = file_slots[i];
    d = fleet_queue_dataset(s->f, &o);
    if (!d)
        test_fail(__FILE__, __LINE__, "dataset: %s", fleet_last_error());
    CHECK_OK(fleet_dataset_set_filelist(d, &file, 1));
    return d;
}

void history_data(scene *s, const char *file, int64_t batch)
{
    s->data = history_dataset(s, file, batch);
}

double history_auc(scene *s, const char *file)
{
    fleet_evaluation found;

    if (!s->tester)
        s->tester = fleet_executor_create(
            s->p, &(fleet_executor_options){.for_test = 1});
    CHECK(s->tester != NULL);
    CHECK_OK(fleet_evaluate(s->tester, history_dataset(s, file, 256), &s->m,
                            &found));
    return found.auc;
}
