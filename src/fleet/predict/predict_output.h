/* predict_output.h - where scores go: a file that is there once it is whole, or
 * what cannot wait for that, a pipe say. */
#pragma once

#include <stdbool.h>

#include "base/file.h"
#include "base/file/file_writer.h"

typedef struct fl_score_file {
    const char *path; /* NULL: nowhere */
    char *target;     /* the file that path leads to; NULL: it is no file */
    fl_writer writer; /* of a new one beside it */
    int fd;           /* of what is no file */
    char *made;       /* the new one, once it is whole; NULL: it is not */
} fl_score_file;

fleet_status fl_score_file_open(fl_score_file *f, const char *path);
fleet_status fl_score_file_put(fl_score_file *f, const void *data, size_t size);

/* All of it is on the disk, beside its place: with another file, before either
 * takes its place. After a failure nothing is left of it. */
fleet_status fl_score_file_finish(fl_score_file *f);

/* It takes its place. After a failure nothing is left of it. */
fleet_status fl_score_file_commit(fl_score_file *f);
void fl_score_file_close(fl_score_file *f); /* without commit: gives it up */
