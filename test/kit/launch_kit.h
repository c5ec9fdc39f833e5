/* launch_kit.h - fleetrun as a user starts it: the program that lies beside the
 * suite, with shell scripts as the job's processes. Every wait has a deadline
 * that fails the test. */
#pragma once

#include <sys/types.h>

/* Parts of scripts. Who is it? */
#define LAUNCH_SERVER    "[ $TRAINING_ROLE = PSERVER ]"
#define LAUNCH_WORKER(i) "[ \"$PADDLE_TRAINER_ID\" = " #i " ]"

/* Says who it is, for launch_hear_all(), and holds the fifo open. */
#define LAUNCH_HOLD                                                            \
    "exec 9>$FIFO;"                                                            \
    "echo ${TRAINING_ROLE:-alone}$PADDLE_TRAINER_ID $PPID $$ >&9;"

/* Until launch_go(). */
#define LAUNCH_WAIT "while [ ! -e $FIFO.go ]; do sleep 0.01; done;"

/* Worker i fails with 7; the others go on when it was waited for. $DOWN is a
 * path of the test's. */
#define LAUNCH_OUTLIVE(i)                                                      \
    LAUNCH_WORKER(i)                                                           \
    " && { echo $$ >$DOWN.new; mv $DOWN.new $DOWN; exit 7; };"                 \
    "while [ ! -e $DOWN ]; do sleep 0.01; done;"                               \
    "while kill -0 $(cat $DOWN) 2>/dev/null; do sleep 0.01; done;"

typedef struct launch {
    pid_t pid;
    int out; /* where its stdout goes; -1: to a file */
} launch;

/* Of each wait, times TEST_SLOWNESS. */
extern int launch_deadline_ms;

/* Start "fleetrun --log_dir THE_TEST'S_FOLDER/log FLAGS... sh -c SCRIPT". The
 * flags are one text, cut at spaces. */
launch launch_start(const char *flags, const char *script);
launch launch_start_to(int out, const char *flags, const char *script);

/* Wait for its end; its exit status, 128 + n for signal n. */
int launch_wait(launch l);

/* Both. */
int launch_run(const char *flags, const char *script);

/* The same for any arguments, up to a NULL. */
launch launch_start_command(char *const arguments[]);
int launch_command(char *const arguments[]);

/* What the last one has written; valid until the end of the test. */
const char *launch_out(void);
const char *launch_err(void);
const char *launch_log(const char *name);

/* The value that a log of `env` shows, or "(unset)". */
const char *launch_value(const char *log, const char *variable);

/* A fifo that scripts find as $FIFO: they `exec 9>$FIFO`, tell lines there and
 * hold it open, as does whatever they start. */
int launch_fifo(void);
const char *launch_hear(int fifo); /* one line */

/* n processes begin, with LAUNCH_HOLD; the one named so, "": the last. */
typedef struct launch_heard {
    int parent, self;
} launch_heard;
launch_heard launch_hear_all(int fifo, int n, const char *name);

void launch_go(void);
void launch_silence(int fifo); /* until nobody holds it open */

/* The same for whoever has the fifo in its environment, as all of a job have,
 * also what holds nothing open. */
void launch_nothing_left(void);

/* Skips the test if there is no mpirun, whose ranks fleetrun starts. */
void launch_need_mpirun(void);

/* The parent of a process. */
pid_t launch_parent(pid_t child);

/* In a new process, before it is another program: the suite may itself run
 * where signals are ignored, as a job of a script. */
void launch_take_signals(void);

/* A port of that host that was free a moment ago, for lists. */
int launch_free_port(const char *host);
