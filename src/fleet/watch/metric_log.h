/* metric_log.h - a file of lines about a training: appended, a line in one
 * write. Lines of JSON come behind one of their run, which begins with {"run":.
 * Rows of CSV begin with the run, and the file with the names of columns. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"

typedef struct fl_metric_log {
    int fd; /* -1: not open */
    const char *path;
    const char *columns; /* a CSV's, its first line; NULL: lines of JSON */
    bool is_empty;       /* a CSV without the names of its columns */
    bool is_file;        /* which can be cut; a FIFO is none */
    bool goes_on;        /* behind lines of the same run */
    bool has_failed;     /* the last line, which was said */
    fl_log *log;
} fl_metric_log;

/* Could it be opened? Nothing is changed. columns: of a CSV; NULL: it is one of
 * JSON. FLEET_EIO; FLEET_EFORMAT: a file of something else, or of other
 * columns. */
fleet_status fl_metric_log_check(const char *path, const char *columns);

/* Open it, made where it does not exist. A last line that a crash has cut off
 * goes. Where `run` is the last run in it, and has as many lines as `lines`,
 * any further ones go, too: a training that goes on writes them again. run 0:
 * a new one. FLEET_EEXIST: another process, or handle, has it open; and the
 * codes of fl_metric_log_check(). */
fleet_status fl_metric_log_open(fl_metric_log *m, const char *path,
                                const char *columns, uint64_t run,
                                int64_t lines, fl_log *log);

/* The names of a CSV's columns, as its first line has them; there may be more
 * behind them. */
extern const char fl_metric_columns[];

/* One line, without its newline. One that the disk refuses is a warning. */
void fl_metric_log_add(fl_metric_log *m, const char *line);

/* What was added is on the disk: before a checkpoint that counts it. */
void fl_metric_log_flush(fl_metric_log *m);
void fl_metric_log_close(fl_metric_log *m);
