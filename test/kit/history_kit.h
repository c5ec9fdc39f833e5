/* history_kit.h - users' histories, made from a seed, with labels whose best
 * reachable AUC is known, and models of sequences on them. */
#pragma once

#include "fleet/applications/ctr.h"
#include "model_kit.h"

/* Item i is of topic i mod HISTORY_TOPICS, user u likewise. A history's topics
 * follow each other, each the one behind that of the item before, mostly. */
enum { HISTORY_ITEMS = 20, HISTORY_TOPICS = 5, HISTORY_USERS = 20 };

/* When the label of a sample is 1, in nine of ten cases; else it is 0 in nine
 * of ten. */
typedef enum history_rule {
    HISTORY_HAS,  /* the history has an item of the item's topic */
    HISTORY_NEXT, /* the item's topic is the one behind the history's last */
    HISTORY_USER  /* it is the user's */
} history_rule;

/* MultiSlot lines in a file of the test's folder: "label", then those of
 * history_slots that the model has. best, if it is not NULL: the AUC of the
 * probability that a label was drawn with. */
const char *history_file(const char *name, const fl_ctr_model *model, int lines,
                         int seed, history_rule rule, double *best);

/* "history" and "item", of table "items"; "user" of table "users", "negative"
 * of "items" again, as long as the history. */
extern const fleet_id_slot history_slots[4];

bool history_has(const fl_ctr_model *m, const fleet_id_slot *s);

/* A program of the model, with those of the slots that it has, unless there are
 * others; its loss is
 * minimized by Adam of that rate, by `strategy` if it is not NULL. */
void history_open(scene *s, const fleet_options *options,
                  const fl_ctr_model *model, fleet_ctr_options how, float rate,
                  const fleet_distributed_strategy *strategy);

/* The file as s->data, or a dataset of its own. */
void history_data(scene *s, const char *file, int64_t batch);
fleet_dataset *history_dataset(const scene *s, const char *file, int64_t batch);

/* The AUC on a file. */
double history_auc(scene *s, const char *file);
