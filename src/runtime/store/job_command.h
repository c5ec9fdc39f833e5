/* job_command.h - commands that one worker gives to all processes of a job at
 * one point of the training, to do with their stores: to lanes of servers
 * (src/ps) or to ranks that share out tables (src/fleet/ranks_commands.c). */
#pragma once

typedef enum fl_job_command {
    FL_COMMAND_SAVE, /* its part of a save; told in JSON what of it, and
                        where */
    FL_COMMAND_LOAD, /* its part of a save; told in JSON which, and how */
    FL_COMMAND_HASH, /* the sum over its rows of one table */
    FL_COMMAND_READ, /* rows, or what a table has; told in JSON which */
    FL_COMMAND_WRITE /* rows or weights; the same, with the values */
} fl_job_command;
