/* pass_note.h - a note on the disk of the pass that a process has begun, until
 * the process ends by itself. The one that is started after it was killed
 * compares it with what it has loaded, and names what is lost.
 */
#pragma once

#include "base/log.h"
#include "fleet/job/position.h"

typedef struct fl_pass_note {
    char *folder;    /* NULL: none is written */
    bool is_read;    /* the note of a process before this one */
    bool is_written; /* there is one of this process */
} fl_pass_note;

/* A pass begins where the training is: the note says so. The first time a line
 * names passes that a process before this one had begun and that what was
 * loaded has not. FLEET_EIO: the first one cannot be written; the pass has not
 * begun. If a later one cannot be, a line says so. */
fleet_status fl_pass_note_begin(fl_pass_note *n, fl_log *log,
                                const fl_position *at);

/* The process ends by itself, with all rows at home: the note goes. */
void fl_pass_note_remove(fl_pass_note *n);
void fl_pass_note_done(fl_pass_note *n);
