/* job_command.h - what one worker has all parts of a job do with their stores
 * at one point of the training: lanes of servers (src/ps) or ranks that share
 * out tables (src/fleet/ranks_commands.c). */
#ifndef FL_RUNTIME_STORE_JOB_COMMAND_H
#define FL_RUNTIME_STORE_JOB_COMMAND_H

typedef enum fl_job_command {
    FL_COMMAND_SAVE, /* its part of a save; told in JSON what of it, and
                        where */
    FL_COMMAND_LOAD, /* its part of the save at a path */
    FL_COMMAND_HASH  /* the sum over its rows of one table */
} fl_job_command;

#endif
