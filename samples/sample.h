/* sample.h - what mlp.c and ctr.c share: their command line, and the closing
 * line. A call whose command line does not fit ends the program. */
#pragma once

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/fleet.h>

/* Leave the function with the first failure; its text is already there. */
#define TRY(call)                                                              \
    do {                                                                       \
        fleet_status status_ = (call);                                         \
        if (status_ != FLEET_OK)                                               \
            return status_;                                                    \
    } while (0)

typedef struct sample_options {
    int a_sync;         /* --async: workers do not wait for each other */
    int hybrid;         /* --hybrid: tables on servers, ranks for the rest */
    const char *device; /* --device: "cpu", "gpu:0"; "gpu": each worker's own */
} sample_options;

/* Read argv: options into *o, the words after them into word[n_word], which has
 * the defaults. */
static inline void read_options(sample_options *o, int argc, char **argv,
                                const char *usage, const char **word,
                                int n_word)
{
    const struct option known[] = {{"async", no_argument, &o->a_sync, 1},
                                   {"hybrid", no_argument, &o->hybrid, 1},
                                   {"device", required_argument, NULL, 'd'},
                                   {"help", no_argument, NULL, 'h'},
                                   {0}};
    int found;

    *o = (sample_options){.device = "cpu"};
    while ((found = getopt_long(argc, argv, "", known, NULL)) != -1)
        if (found == 'd')
            o->device = optarg;
        else if (found == 'h')
            exit(fputs(usage, stdout) < 0);
        else if (found == '?') /* getopt_long() has said what is wrong */
            break;
    if (found == '?' || argc - optind > n_word) {
        fputs(usage, stderr);
        exit(1);
    }
    for (int i = 0; optind + i < argc; i++)
        word[i] = argv[optind + i];
}

static inline int read_epochs(const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);

    if (end != text && !*end && n >= 0 && n <= 1000000)
        return (int)n;
    fprintf(stderr, "EPOCHS: expected an integer, got \"%s\"\n", text);
    exit(1);
}

/* Put the program on the device. A server computes no step: it needs none. */
static inline fleet_status place_program(const sample_options *o, fleet *f,
                                         fleet_program *p)
{
    fleet_place place = FLEET_GPU(fleet_worker_gpu(f));

    if (strcmp(o->device, "gpu") != 0)
        TRY(fleet_place_parse(o->device, &place));
    return fleet_is_worker(f) ? fleet_program_place(p, place, NULL) : FLEET_OK;
}

static inline fleet_status print_report(fleet *f, const fleet_report *report)
{
    char *line = fleet_report_line(f, report);

    if (!line)
        return FLEET_ENOMEM;
    puts(line);
    fleet_free(line);
    return FLEET_OK;
}
