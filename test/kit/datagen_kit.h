/* datagen_kit.h - bin/fleet-datagen, run by tests, and what it says. */
#pragma once

enum { DATAGEN_MOST = 4000 };

/* All that it says; how it ends. */
int datagen_run(const char *arguments, char said[DATAGEN_MOST]);

/* It makes a file of that name in the test's folder, whose bytes are for
 * fl_free(). */
char *datagen_make(const char *options, const char *name,
                   char said[DATAGEN_MOST]);

/* The same without the bytes: the file's path. */
const char *datagen_file(const char *options, const char *name,
                         char said[DATAGEN_MOST]);

/* A number of a line of JSON; the key has its quotes. */
double datagen_number(const char *line, const char *key);

/* fleet-train by a configuration, and words behind it: its closing line. */
void datagen_train(const char *config, const char *words,
                   char said[DATAGEN_MOST]);
