/* lines_kit.h - small models trained on lines of each text format, and what an
 * evaluation of their own finds, for tests of who scores such lines again. */
#pragma once

#include <fleet/fleet.h>
#include <stddef.h>

enum { LINES_N = 150 };

typedef enum lines_format {
    LINES_CSV, /* label first, standardized and hashed columns, "?" missing */
    LINES_HEADER, /* the same by names, with a header, comments, ';' */
    LINES_CRITEO,
    LINES_MULTISLOT,
    LINES_LIBSVM, /* ids of value 1 alone */
    LINES_SLOT_TEXT,
    LINES_JSON,
    LINES_TFRECORD, /* tf.Example */
    LINES_MADE      /* the lines of LINES_CSV; slots made of others, words */
} lines_format;

typedef struct lines_scene {
    lines_format format;
    fleet *f;
    fleet_program *p;
    fleet_model m;
    fleet_var *pair; /* the prediction, twice side by side */
    fleet_dataset *data;
    fleet_executor *trainer, *tester;
    char *text;          /* of the file, for free(), */
    size_t size;         /* its bytes */
    const char *path;    /* of the file */
    float want[LINES_N]; /* predictions */
    fleet_evaluation found;
} lines_scene;

/* Trained for a pass, and evaluated. */
void lines_open(lines_scene *s, lines_format format);
void lines_close(lines_scene *s);

/* So many passes more. */
void lines_train(lines_scene *s, int passes);

/* Its inference model, with its dataset and label: a path of the test's
 * folder. */
const char *lines_saved(lines_scene *s);
fleet_predictor *lines_predictor(lines_scene *s);

/* The text without labels, for free(), and its bytes. */
char *lines_unlabelled(const lines_scene *s, size_t *size);

/* Numbers of a file of scores, one a line: how many. */
int lines_scores(const char *path, float *to, int most);
