/* example_kit.h - records of TFRecord files, each a tf.Example, written by
 * hand. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct example {
    char bytes[4000]; /* of its features */
    size_t n;
} example;

/* Each list as TensorFlow writes it: packed. An example is all zeros before. */
void example_ints(example *e, const char *name, const int64_t *x, int n);
void example_floats(example *e, const char *name, const float *x, int n);
void example_texts(example *e, const char *name, const char *const *x, int n);

/* A feature whose Feature has these bytes. */
void example_feature(example *e, const char *name, const void *bytes, size_t n);

/* Bytes in a field of that number, behind what is at `to`; the end. */
char *example_field(char *to, int number, const void *bytes, size_t n);
char *example_varint(char *to, uint64_t x);

/* The record of it, or of any bytes, behind what is at `to`; the end. */
char *example_record(char *to, const example *e);
char *example_framed(char *to, const void *bytes, size_t n);
