/* trail.h - a worker's trail: how far it is, in a folder of its own. The
 * process that is started after one that died goes on behind that, with the
 * same numbers and the same bits (docs/adr/0064-workers-started-again.md).
 *
 *   FOLDER/lock          locked by the process that has the trail
 *   FOLDER/journal-N     what it is, where passes begin and end, what came of
 *                        its calls before, between and after them
 *   FOLDER/push-0, -1    its last two pushes, each before it was sent: the
 *                        packets, and where training is behind it
 *   FOLDER/call-0, -1    its last two calls within a pass, each before it was
 *                        made
 *
 * A program runs again from its first line. Calls that were over before its
 * first training pass have their results again, and are not made again. The
 * training passes that are over are passed by; the one that was under way goes
 * on. If that one's last batch had been trained, it goes on behind that: its
 * end, and what the program did after it, are done again, and calls that were
 * over have their results. What a lane has had already it knows by its number.
 *
 * Threads: one at a time. */
#pragma once

#include "base/log.h"
#include "net/packet.h"
#include "ps/journal/journal_writer.h"

enum { FL_MOST_MARK = 128 };

/* What the facade has to say, and reads again. */
typedef struct fl_trail_host {
    void *arg;
    /* Where training is behind the batch whose push it is, or, if `over`, at
     * the end of a pass: how many bytes, at most FL_MOST_MARK; 0: that is not
     * known, where no training pass over a dataset is under way. NULL: 0. */
    size_t (*mark)(void *arg, bool over, void *to);
    /* Of the pass that begins, a text for fl_free(); NULL: no memory. */
    char *(*describe)(void *arg);
} fl_trail_host;

typedef struct fl_trail_options {
    const char *folder; /* of all workers' trails of the job */
    int worker;
    fl_journal_level level;
    fl_log *log; /* NULL: none */
} fl_trail_options;

typedef struct fl_trail fl_trail;

/* Lock and read FOLDER/worker-N, which is made if need be; this process is the
 * next that has it. FLEET_EEXIST: another process has it. FLEET_ECORRUPT: a
 * file is damaged. */
fleet_status fl_trail_open(fl_trail **t, const fl_trail_options *o);
void fl_trail_close(fl_trail *t); /* NULL is fine */
void fl_trail_set_host(fl_trail *t, const fl_trail_host *host);

const char *fl_trail_folder(const fl_trail *t);

/* For HELLO: of the trail, and the how manieth process it has. */
uint64_t fl_trail_nonce(const fl_trail *t);
uint32_t fl_trail_life(const fl_trail *t);

/* The job's run, as HELLO was answered. What a trail has of another run is
 * forgotten. */
fleet_status fl_trail_enter(fl_trail *t, uint32_t run);

/* --- what is done --------------------------------------------------------- */

/* The packets of a push, by lane, as they are about to be sent. The first one
 * of a pass begins it. */
typedef struct fl_trail_packets {
    fl_packet *const *packet;
    int n;
} fl_trail_packets;

fleet_status fl_trail_push(fl_trail *t, uint64_t step, uint64_t reduced,
                           const fl_trail_packets *lane, int n_lane);

/* All batches of a pass are trained; its end comes next. */
fleet_status fl_trail_pass_is_over(fl_trail *t, uint64_t step,
                                   uint64_t reduced);

/* A step without a gradient, or numbers for a sum over workers. */
typedef struct fl_trail_call {
    uint64_t step, reduced; /* the stream's, with it */
    bool reduces;
    uint16_t flags; /* of the step's message */
    uint16_t op;    /* of its section; or how numbers are joined */
    const char *text;
    const double *x;
    int n; /* of x */
} fl_trail_call;

/* It is about to be made. FLEET_ESTATE: before its first training pass the
 * program made another one in its place. */
fleet_status fl_trail_call_begins(fl_trail *t, const fl_trail_call *c);

/* What has come of numbers, and of a command: each lane's answer. */
fleet_status fl_trail_reduced(fl_trail *t, uint64_t number, const double *x,
                              int n);
fleet_status fl_trail_command_done(fl_trail *t, uint64_t step,
                                   char *const *answer, int n_lane);

/* A save, which is a command, begins with that step; and is over: what servers
 * have written is in place, or is not. */
fleet_status fl_trail_save_begins(fl_trail *t, uint64_t step, const char *text);
fleet_status fl_trail_save_is_over(fl_trail *t, uint64_t step,
                                   fleet_status status);

/* The worker leaves with that step; and all lanes know it. */
fleet_status fl_trail_leaves(fl_trail *t, uint64_t step);
fleet_status fl_trail_has_left(fl_trail *t);

/* Its program is over: the next process that has it begins anew. */
fleet_status fl_trail_end(fl_trail *t);

/* --- what was done by the process before ---------------------------------- */

typedef enum fl_trail_state {
    FL_TRAIL_NEW,     /* nothing was trained */
    FL_TRAIL_MIDDLE,  /* of a training pass, behind a push */
    FL_TRAIL_OVER,    /* behind the last batch of a pass, or somewhere between
                        its end and the first push of the next one */
    FL_TRAIL_LOST,    /* it has trained, and what is not known */
    FL_TRAIL_LEAVING, /* it had nothing more to do; lanes may not know */
    FL_TRAIL_GONE     /* they do, and may have ended */
} fl_trail_state;

typedef struct fl_trail_point {
    fl_trail_state state;
    uint64_t step, reduced; /* the stream's, at that point */
    const char *text;       /* of the pass; the trail's */
    const void *mark;       /* the trail's */
    size_t mark_size;
    int n_push; /* that may not have come to all lanes */
    bool has_call;
    fl_trail_call call; /* within the pass, which may not have, either */
} fl_trail_point;

/* Good until fl_trail_goes_on(). */
const fl_trail_point *fl_trail_from(const fl_trail *t);

/* The packets of a push, the older one first; good during the call. */
typedef fleet_status fl_trail_visit(void *arg, uint64_t step, int lane,
                                    const fl_packet *p);
fleet_status fl_trail_each_packet(const fl_trail *t, int push,
                                  fl_trail_visit *visit, void *arg);

/* The first training pass begins: the stream is where the trail says. */
void fl_trail_goes_on(fl_trail *t);

/* Is that not so yet? Calls are those before the first training pass then. */
bool fl_trail_is_early(const fl_trail *t);

/* Numbers that were summed: false, if that is not known. FLEET_ESTATE in
 * *status: they were not n numbers. */
bool fl_trail_find_reduced(const fl_trail *t, uint64_t number, double *x, int n,
                           fleet_status *status);

/* The answers of a command that is over, for fl_free(). answer NULL: it is
 * asked only whether it is. */
bool fl_trail_find_command(const fl_trail *t, uint64_t step, char **answer,
                           int n_lane, fleet_status *status);

/* What was said to servers of the save that began with that step, and whether
 * it is over, with that status; NULL: none began. */
const char *fl_trail_find_save(const fl_trail *t, uint64_t step, bool *over,
                               fleet_status *status);
