// A kernel object of a driver with OpenCL's C functions, launched without Python on a queue that runs it at once.
#include "hot.h"

typedef int (*SetArg)(void* kernel, unsigned index, size_t nbytes, const void* value);
typedef int (*Launch)(void* queue, void* kernel, unsigned dims, const size_t* start, const size_t* size, const size_t* local,
                      unsigned n_events, const void* events, void* event);

typedef struct {
  int slot;
  Py_ssize_t at, extra;  // of its offset: the byte in the struct of scalars, and what is added
  void* memory;          // that the kernel object has
} BufferArg;

typedef struct {
  Py_ssize_t at, nbytes;
} Place;

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject *slow, *backend, *queue, *keep;
  SetArg set_arg;
  Launch launch;
  void *driver, *kernel;
  unsigned dims;
  size_t size[3], local[3];
  int armed, n_buffers, set;  // set: the kernel object has all that is noted here
  BufferArg* buffers;
  Numbers numbers;
  Place* places;
  char* scalars;
  Py_ssize_t n_scalars;
} Enqueue;

static int is_none(PyObject* object, PyObject* name) {
  PyObject* value = PyObject_GetAttr(object, name);
  Py_XDECREF(value);
  return value ? value == Py_None : -1;
}

// Whether nothing that was launched before may still run, or another queue is the current one. 1, 0, or -1.
static int is_open(Enqueue* self) {
  int open = is_none(self->backend, s_streams);
  if (open == 1) open = is_none(self->queue, s_last);
  if (open != 1) return open;
  PyObject* waiting = PyObject_GetAttr(self->queue, s_waiting);
  if (!waiting) return -1;
  open = PyList_CheckExact(waiting) && !PyList_GET_SIZE(waiting);
  Py_DECREF(waiting);
  return open;
}

// 1 where it has changed.
static int put(char* to, const void* from, size_t n) {
  if (!memcmp(to, from, n)) return 0;
  memcpy(to, from, n);
  return 1;
}

// The kernel object's arguments: only what has changed since the last launch. The driver's status.
static int set_all(Enqueue* self, void** memory, const Py_ssize_t* offsets, char (*numbers)[CELL]) {
  int status = 0, changed = !self->set;
  for (int i = 0; i < self->n_buffers; ++i) {
    BufferArg* b = &self->buffers[i];
    if (!status && (memory[i] != b->memory || !self->set)) status = self->set_arg(self->kernel, i, sizeof(void*), &memory[i]);
    b->memory = memory[i];
    const long long offset = offsets[b->slot] + b->extra;
    changed |= put(self->scalars + b->at, &offset, sizeof offset);
  }
  for (int i = 0; i < self->numbers.n; ++i)
    changed |= put(self->scalars + self->places[i].at, numbers[i], self->places[i].nbytes);
  if (!status && changed) status = self->set_arg(self->kernel, self->n_buffers, self->n_scalars, self->scalars);
  self->set = !status;
  return status;
}

// 1: launched; 0: this is not the way; -1 with an exception. From the look at the queue on no Python runs, so no thread
// comes between: the interpreter's lock orders these launches, as it does those through PyOpenCL.
static int launched(Enqueue* self, PyObject** handles, const Py_ssize_t* offsets, int n, PyObject* values) {
  char numbers[MAX_SLOTS][CELL];
  void* memory[MAX_SLOTS];
  if (numbers_take(&self->numbers, values, numbers)) return -1;
  for (int i = 0; i < self->n_buffers; ++i) {
    if (self->buffers[i].slot >= n) return 0;
    PyObject* pointer = PyObject_GetAttr(handles[self->buffers[i].slot], s_pointer);
    memory[i] = pointer ? PyLong_AsVoidPtr(pointer) : NULL;
    Py_XDECREF(pointer);
    if (!memory[i] && PyErr_Occurred()) return -1;
  }
  const int open = is_open(self);
  if (open != 1) return open;
  if (set_all(self, memory, offsets, numbers)) return 0;
  return !self->launch(self->driver, self->kernel, self->dims, NULL, self->size, self->local, 0, NULL, NULL);
}

static int slowly(Enqueue* self, PyObject** handles, const Py_ssize_t* offsets, int n, PyObject* values) {
  PyObject *list = PyList_New(n), *starts = PyList_New(n), *done = NULL;
  for (int i = 0; i < n && list && starts; ++i) {
    PyObject* start = PyLong_FromSsize_t(offsets[i]);
    if (!start) Py_CLEAR(starts);
    else PyList_SET_ITEM(starts, i, start);
    PyList_SET_ITEM(list, i, Py_NewRef(handles[i]));
  }
  PyObject* args[3] = {list, starts, values};
  if (list && starts) done = PyObject_Vectorcall(self->slow, args, 3, NULL);
  Py_XDECREF(list);
  Py_XDECREF(starts);
  Py_XDECREF(done);
  return done ? 0 : -1;
}

// A launch that the driver refuses goes to Python too, which raises the driver's error, or has more luck.
int enqueue_now(PyObject* object, PyObject** handles, const Py_ssize_t* offsets, int n, PyObject* values) {
  Enqueue* self = (Enqueue*)object;
  const int done = self->armed ? launched(self, handles, offsets, n, values) : 0;
  if (done) return done > 0 ? 0 : -1;
  return slowly(self, handles, offsets, n, values);
}

static PyObject* enqueue_call(PyObject* object, PyObject* const* args, size_t n, PyObject* names) {
  return PyObject_Vectorcall(((Enqueue*)object)->slow, args, n, names);
}

static int take_sizes(PyObject* from, size_t* sizes) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(from); ++i) {
    sizes[i] = PyLong_AsSize_t(PyTuple_GET_ITEM(from, i));
    if (PyErr_Occurred()) return -1;
  }
  return 0;
}

static int within(Py_ssize_t at, Py_ssize_t nbytes, Py_ssize_t most, Py_ssize_t room) {
  if (at >= 0 && nbytes > 0 && nbytes <= most && at <= room - nbytes) return 1;
  PyErr_SetString(PyExc_ValueError, "a number outside the struct");
  return 0;
}

static int take_buffers(Enqueue* self, PyObject* buffers) {
  self->buffers = PyMem_Calloc(PyList_GET_SIZE(buffers) + 1, sizeof(BufferArg));
  if (!self->buffers) return PyErr_NoMemory(), -1;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(buffers); ++i) {
    BufferArg* b = &self->buffers[self->n_buffers++];
    if (!PyArg_ParseTuple(PyList_GET_ITEM(buffers, i), "nin", &b->at, &b->slot, &b->extra)) return -1;
    if (b->slot < 0 || b->slot >= MAX_SLOTS) return PyErr_SetString(PyExc_ValueError, "a slot beyond the limit"), -1;
    if (!within(b->at, sizeof(long long), sizeof(long long), self->n_scalars)) return -1;
  }
  return 0;
}

static int take_numbers(Enqueue* self, PyObject* numbers) {
  const Py_ssize_t n = PyList_GET_SIZE(numbers);
  self->places = PyMem_Calloc(n + 1, sizeof(Place));
  if (!self->places) return PyErr_NoMemory(), -1;
  if (numbers_init(&self->numbers, n)) return -1;
  for (Py_ssize_t i = 0; i < n; ++i) {
    Place* p = &self->places[i];
    PyObject* get;
    int steady;
    if (!PyArg_ParseTuple(PyList_GET_ITEM(numbers, i), "nnOp", &p->at, &p->nbytes, &get, &steady)) return -1;
    if (!within(p->at, p->nbytes, CELL, self->n_scalars)) return -1;
    numbers_add(&self->numbers, get, steady);
  }
  return 0;
}

static void disarm(Enqueue* self) {
  self->armed = self->n_buffers = 0;
  numbers_drop(&self->numbers);
  PyMem_Free(self->buffers);
  PyMem_Free(self->places);
  PyMem_Free(self->scalars);
  self->buffers = NULL;
  self->places = NULL;
  self->scalars = NULL;
}

// arm((set_arg, launch), queue, kernel, size, local, buffers, numbers, struct, keep); once.
static PyObject* enqueue_arm(PyObject* object, PyObject* args) {
  Enqueue* self = (Enqueue*)object;
  unsigned long long set_arg, launch, driver, kernel;
  PyObject *size, *local, *buffers, *numbers, *keep;
  const char* scalars;
  Py_ssize_t n_scalars;
  if (!PyArg_ParseTuple(args, "(KK)KKO!O!O!O!y#O", &set_arg, &launch, &driver, &kernel, &PyTuple_Type, &size, &PyTuple_Type, &local,
                        &PyList_Type, &buffers, &PyList_Type, &numbers, &scalars, &n_scalars, &keep))
    return NULL;
  const Py_ssize_t dims = PyTuple_GET_SIZE(size);
  if (self->armed || dims < 1 || dims > 3 || PyTuple_GET_SIZE(local) != dims || PyList_GET_SIZE(buffers) > MAX_SLOTS ||
      PyList_GET_SIZE(numbers) > MAX_SLOTS)
    return PyErr_SetString(PyExc_ValueError, "armed twice, or more than a launch holds"), NULL;
  self->set_arg = (SetArg)(uintptr_t)set_arg, self->launch = (Launch)(uintptr_t)launch;
  self->driver = (void*)(uintptr_t)driver, self->kernel = (void*)(uintptr_t)kernel;
  self->dims = (unsigned)dims;
  self->n_scalars = n_scalars;
  self->scalars = PyMem_Malloc(n_scalars + 1);
  if (!self->scalars) return PyErr_NoMemory();
  memcpy(self->scalars, scalars, n_scalars);
  if (take_sizes(size, self->size) || take_sizes(local, self->local) || take_buffers(self, buffers) || take_numbers(self, numbers)) {
    disarm(self);
    return NULL;
  }
  Py_XSETREF(self->keep, Py_NewRef(keep));
  self->armed = 1;
  Py_RETURN_NONE;
}

// Enqueue(slow, backend, queue)
static PyObject* enqueue_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject *slow, *backend, *queue;
  if (!PyArg_ParseTuple(args, "OOO", &slow, &backend, &queue)) return NULL;
  Enqueue* self = (Enqueue*)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->vectorcall = enqueue_call;
  self->numbers.n_last = -1;
  self->slow = Py_NewRef(slow);
  self->backend = Py_NewRef(backend);
  self->queue = Py_NewRef(queue);
  return (PyObject*)self;
}

static int enqueue_traverse(PyObject* object, visitproc visit, void* arg) {
  Enqueue* self = (Enqueue*)object;
  Py_VISIT(self->slow);
  Py_VISIT(self->backend);
  Py_VISIT(self->queue);
  Py_VISIT(self->keep);
  return numbers_traverse(&self->numbers, visit, arg);
}

// Garbage refers to this through what `slow` holds; the rest stays as it is for a last call.
static int enqueue_clear(PyObject* object) {
  Enqueue* self = (Enqueue*)object;
  Py_XSETREF(self->slow, Py_NewRef(Py_None));
  return 0;
}

static void enqueue_dealloc(PyObject* object) {
  Enqueue* self = (Enqueue*)object;
  PyObject_GC_UnTrack(object);
  disarm(self);
  Py_XDECREF(self->slow);
  Py_XDECREF(self->backend);
  Py_XDECREF(self->queue);
  Py_XDECREF(self->keep);
  Py_TYPE(object)->tp_free(object);
}

static PyMethodDef enqueue_methods[] = {{"arm", enqueue_arm, METH_VARARGS, NULL}, {NULL}};

static PyMemberDef enqueue_members[] = {{"armed", T_INT, offsetof(Enqueue, armed), READONLY, NULL}, {NULL}};

PyTypeObject EnqueueType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch_fl._hot.Enqueue",
    .tp_basicsize = sizeof(Enqueue),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Enqueue, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_methods = enqueue_methods,
    .tp_members = enqueue_members,
    .tp_new = enqueue_new,
    .tp_traverse = enqueue_traverse,
    .tp_clear = enqueue_clear,
    .tp_dealloc = enqueue_dealloc,
};
