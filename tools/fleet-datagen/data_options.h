/* data_options.h - what is to be made, as the command line says it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <fleet/dataset.h>

#include "hidden_model.h"
#include "sequence_model.h"

/* A model of sequences. */
typedef struct sequence_reader {
    const char *name;
    bool has_history; /* in a slot of that role; else it is a feature */
    bool has_clicks, has_pairs;
} sequence_reader;

typedef struct data_options {
    fleet_format format;
    int64_t lines, first, seed, ids, top;
    int64_t dense, slots;    /* of a log */
    int64_t history, topics; /* history 0: it is a log */
    double zipf, positive, signal, follow;
    sequence_rule rule;
    bool pairs;
    const char *file, *config, *model;

    /* options that were given, NULL: none, of logs alone, ... */
    const char *of_logs, *of_sequences, *of_labels;
    const sequence_reader *reader; /* `model`, of sequences; it is found last */
} data_options;

extern const char data_options_usage[];

/* All of the command line. False: it is refused, as stderr says; or help was
 * asked for (*help). */
bool data_options_read(int argc, char **argv, data_options *o, bool *help);

bool data_options_is_compressed(const char *path);

void data_options_log(const data_options *o, hidden_model *m);
void data_options_sequence(const data_options *o, sequence_model *m);
