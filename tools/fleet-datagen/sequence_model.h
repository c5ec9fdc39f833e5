/* sequence_model.h - histories of items, and what comes behind them, from a
 * process that is a function of a seed. Each line is a function of the seed and
 * its number alone.
 *
 * Each item has a topic; all topics have as many items. Of a history the first
 * item is of any topic. Each further one follows those before it with the
 * chance `follow`, and else is of any topic, too:
 *
 *   interest  it is of the topic of one of them, of each with the same chance
 *   next      it is of the topic behind that of the last one
 *
 * Within its topic an item is drawn by Zipf's law.
 *
 * In a pair the item is the one that follows the history. In a click it is
 * liked in every second line, of which the topic is one of the history's
 * (interest) or the one behind the last (next), and else not; the label is 1
 * with the probability sigmoid(z), where z is a constant, plus or minus what
 * liking is worth, plus what the item is worth.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "zipf.h"

enum { MOST_HISTORY = 1000, MOST_TOPIC = 10000 };

typedef enum sequence_rule { RULE_INTEREST, RULE_NEXT } sequence_rule;

typedef struct sequence_model {
    uint64_t seed;
    sequence_rule rule;
    bool pairs;   /* no label */
    int most;     /* items of a history, 1 at least */
    int topics;   /* 2 or more */
    int64_t n_id; /* items; a multiple of topics */
    double exponent, follow, positive, signal;

    /* made by sequence_model_begin() */
    zipf in_topic;
    double base, share_liked, share_worth, log_sum;
} sequence_model;

typedef struct sequence_line {
    int n;
    int64_t history[MOST_HISTORY], item; /* ids */

    /* of a click */
    int64_t label;
    double probability;

    /* of a pair */
    double log_q;        /* logarithm of the item's share of all pairs */
    int64_t above, ties; /* items that are likelier to follow; as likely, it
                            among them */
} sequence_line;

void sequence_model_begin(sequence_model *m);
void sequence_model_line(const sequence_model *m, uint64_t number,
                         sequence_line *to);
