// torch_fl._hot: the hit path of the route as a CPython extension. It knows neither torch's headers nor any chip; each
// type stands in for a Python class or function of the same meaning, which runs where this was not built.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#define CELL 16       // bytes of the largest scalar
#define MAX_SLOTS 64  // buffers of one plan, arguments of one kernel; more take the Python way

typedef struct {
  PyObject_HEAD
  long long active, peak, made, made_bytes, freed;
} Counters;

typedef struct {
  PyObject_HEAD
  PyObject *device, *handle, *shelf, *counters, *weakrefs;
  long long nbytes;
} Buffer;

typedef struct {
  PyObject* get;
  char data[CELL];
} Number;

// The numbers that a launcher asks for at each launch; steady ones only where a launch-time value is another object.
typedef struct {
  int n, n_last, steady;
  Number* all;
  PyObject* last[8];  // the launch-time values whose bytes these are
} Numbers;

extern PyTypeObject CountersType, BufferType, AllocatorType, LockType, CallType, EnqueueType, ReplayType, ViewType, RouteType;
extern PyObject *s_buffer, *s_spec, *s_offset, *s_address, *s_bind, *s_plans, *s_run, *s_handler, *s_listener, *s_known, *s_pointer,
    *s_streams, *s_last, *s_waiting;

// A new Buffer: by an Allocator, or by whatever else is called in its place.
PyObject* allocate(PyObject* allocator, PyObject* nbytes);
// Runs a Call; `handles` are borrowed. 0, or -1 with an exception.
int call_now(PyObject* call, PyObject** handles, const Py_ssize_t* offsets, PyObject* values);
// The same for an Enqueue, of all `n` slots.
int enqueue_now(PyObject* enqueue, PyObject** handles, const Py_ssize_t* offsets, int n, PyObject* values);

// Room for `most` numbers, filled one by one. 0, or -1 with an exception.
int numbers_init(Numbers* numbers, Py_ssize_t most);
void numbers_add(Numbers* numbers, PyObject* get, int steady);
// The bytes for these launch-time values, zeros behind them. 0, or -1 with an exception.
int numbers_take(Numbers* numbers, PyObject* values, char (*bytes)[CELL]);
int numbers_traverse(Numbers* numbers, visitproc visit, void* arg);
void numbers_drop(Numbers* numbers);
