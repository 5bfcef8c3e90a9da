//! Memory and tensors through the C functions, ranks as threads.

mod ranks;

use ranks::*;
use std::ptr::null_mut;
use wholegraph::ffi::global_reference::*;
use wholegraph::ffi::tensor_description::*;
use wholegraph::ffi::wholememory::communicator::*;
use wholegraph::ffi::wholememory::library::*;
use wholegraph::ffi::wholememory::memory::*;
use wholegraph::ffi::wholememory_op::*;
use wholegraph::ffi::wholememory_tensor::*;

const FLOAT: u32 = 1;
const INT64: u32 = 6;
const II: wholememory_error_code_t = WHOLEMEMORY_INVALID_INPUT;

fn plain_reference() -> wholememory_gref_t {
    // SAFETY: any pointer may be given.
    unsafe { wholememory_create_continuous_global_reference(null_mut()) }
}

#[test]
fn pointer_tensors_follow_the_vectors() {
    let mut data = [0f32; 32];
    let tensor = over(&mut data, &[4, 6], &[8, 1], FLOAT);
    let (mut first, mut second, mut local) = (null_mut(), null_mut(), null_mut());
    let mut values = [9usize; 2];
    let mut gref = plain_reference();
    // SAFETY: all places outlive the calls.
    unsafe {
        good(wholememory_tensor_get_subtensor(
            tensor,
            [1, 2].as_mut_ptr(),
            [-1, -1].as_mut_ptr(),
            &mut first,
        ));
        good(wholememory_tensor_get_subtensor(
            first,
            [1, 1].as_mut_ptr(),
            [-1, -1].as_mut_ptr(),
            &mut second,
        ));
        let found = *wholememory_tensor_get_tensor_description(second);
        assert_eq!((found.sizes[0], found.sizes[1], found.storage_offset), (2, 3, 19));
        assert_eq!(wholememory_tensor_get_root(second), tensor);
        assert_eq!(wholememory_tensor_get_root(tensor), tensor);
        let address = data.as_ptr() as usize;
        assert_eq!(wholememory_tensor_get_data_pointer(second) as usize, address + 76);
        assert!(!wholememory_tensor_has_handle(second));
        assert!(wholememory_tensor_get_memory_handle(second).is_null());
        good(wholememory_tensor_get_entry_offsets(values.as_mut_ptr(), second));
        assert_eq!(values, [0, 4]);
        good(wholememory_tensor_get_entry_partition_sizes(
            values.as_mut_ptr(),
            second,
        ));
        assert_eq!(values[0], 4);
        good(wholememory_tensor_get_local_entry_count(
            values.as_mut_ptr(),
            second,
        ));
        assert_eq!(values[0], 4);
        good(wholememory_tensor_get_local_entry_start(
            values.as_mut_ptr(),
            second,
        ));
        assert_eq!(values[0], 0);
        bad(
            wholememory_tensor_map_local_tensor(second, &mut local),
            WHOLEMEMORY_INVALID_VALUE,
            "plain memory",
        );
        good(wholememory_tensor_get_global_reference(second, &mut gref));
        assert_eq!(
            (gref.pointer as usize, gref.stride, gref.world_size),
            (address, 0, 1)
        );
        let wide =
            wholememory_tensor_get_subtensor(tensor, [1, 2].as_mut_ptr(), [100, 4].as_mut_ptr(), &mut local);
        bad(wide, WHOLEMEMORY_INVALID_VALUE, "[1, 100)");
        // The description inside is live: an unsqueeze in place counts.
        assert!(wholememory_unsqueeze_tensor(
            wholememory_tensor_get_tensor_description(second),
            0
        ));
        let deep =
            wholememory_tensor_get_subtensor(second, [0; 3].as_mut_ptr(), [1; 3].as_mut_ptr(), &mut local);
        bad(deep, WHOLEMEMORY_NOT_IMPLEMENTED, "3 dimensions");
        // The root may go first.
        destroy(tensor);
        good(wholememory_tensor_get_local_entry_count(
            values.as_mut_ptr(),
            first,
        ));
        assert_eq!(values[0], 4);
        bad(
            wholememory_destroy_tensor(wholememory_tensor_get_root(first)),
            II,
            "does not exist any more",
        );
        assert!(local.is_null());
    }
    destroy(first);
    destroy(second);
}

#[test]
fn a_gather_with_a_bad_tensor_on_one_rank_lets_nobody_wait() {
    with_ranks(2, |rank, comm| {
        let mut table = description(&[10, 4], &[4, 1], 0, FLOAT);
        let mut tensor = null_mut();
        let mut ids = [9i64, -1, 3, 10];
        let mut rows = [7f32; 16];
        let indices = over(&mut ids, &[4], &[1], INT64);
        let output = over(&mut rows, &[4, 4], &[4, 1], FLOAT);
        // SAFETY: handles are numbers; the places outlive the calls.
        unsafe {
            let code = wholememory_create_tensor(
                &mut tensor,
                &mut table,
                comm,
                raw(DISTRIBUTED),
                raw(HOST),
                null_mut(),
            );
            good(code);
            let mut local = null_mut();
            good(wholememory_tensor_map_local_tensor(tensor, &mut local));
            let base = wholememory_tensor_get_data_pointer(local).cast::<f32>();
            let (mut start, mut count) = (0, 0);
            good(wholememory_tensor_get_local_entry_start(&mut start, tensor));
            good(wholememory_tensor_get_local_entry_count(&mut count, tensor));
            assert_eq!((start, count), (5 * rank, 5));
            for i in 0..count * 4 {
                *base.add(i) = (start * 4 + i) as f32;
            }
            destroy(local);
            good(wholememory_communicator_barrier(comm));
            let wanted = if rank == 0 { null_mut() } else { indices };
            let code = wholememory_gather(tensor, wanted, output, null_mut(), null_mut(), -1);
            if rank == 0 {
                bad(code, II, "indices_tensor is NULL");
                assert_eq!(rows, [7.0; 16]);
            } else {
                good(code);
                let expected = |i: usize| match i / 4 {
                    0 => 36.0 + (i % 4) as f32,
                    2 => 12.0 + (i % 4) as f32,
                    _ => 7.0,
                };
                assert!((0..16).all(|i| rows[i] == expected(i)), "{rows:?}");
            }
        }
        let mut other = null_mut();
        // SAFETY: handles are numbers; the places outlive the calls.
        unsafe {
            let code = wholememory_create_tensor(
                &mut other,
                &mut table,
                comm,
                raw(DISTRIBUTED),
                raw(HOST),
                null_mut(),
            );
            good(code);
            destroy(tensor);
            // Rank 0 passes a table that is destroyed: it is refused, and rank 1 gets an answer too.
            let passed = if rank == 0 { tensor } else { other };
            let code = wholememory_gather(passed, indices, output, null_mut(), null_mut(), -1);
            if rank == 0 {
                bad(code, II, "does not exist any more");
            }
            good(wholememory_communicator_barrier(comm));
        }
        destroy(other);
        destroy(indices);
        destroy(output);
    });
}

#[test]
fn hierarchy_lends_its_communicators() {
    with_ranks(2, |_, comm| {
        let handle = malloc(comm, HIERARCHY, HOST, 64, 8);
        let (mut local, mut cross, mut again, mut size) = (null_mut(), null_mut(), null_mut(), 0);
        // SAFETY: handles are numbers; the places outlive the calls.
        unsafe {
            good(wholememory_get_communicator(&mut again, handle));
            assert_eq!(again, comm);
            good(wholememory_get_local_communicator(&mut local, handle));
            good(wholememory_get_cross_communicator(&mut cross, handle));
            good(wholememory_get_local_communicator(&mut again, handle));
            assert_eq!(again, local);
            good(wholememory_communicator_get_size(&mut size, local));
            assert_eq!(size, 2);
            good(wholememory_communicator_get_size(&mut size, cross));
            assert_eq!(size, 1);
            bad(
                wholememory_destroy_communicator(local),
                II,
                "the local communicator of communicator",
            );
            bad(
                wholememory_get_global_pointer(&mut null_mut(), handle),
                II,
                "HIERARCHY",
            );
            let flat = malloc(comm, CONTINUOUS, HOST, 64, 8);
            let code = wholememory_get_cross_communicator(&mut again, flat);
            bad(code, WHOLEMEMORY_NOT_SUPPORTED, "CONTINUOUS");
            good(wholememory_free(flat));
            good(wholememory_destroy_communicator(comm));
            bad(
                wholememory_communicator_barrier(local),
                II,
                "does not exist any more",
            );
        }
    });
}

#[test]
fn rank_memory_and_references_by_type() {
    with_ranks(2, |_, comm| {
        let (mut pointer, mut size, mut offset) = (7 as *mut std::ffi::c_void, 7, 7);
        let mut gref = plain_reference();
        // SAFETY: handles are numbers; the places outlive the calls.
        unsafe {
            let apart = malloc(comm, DISTRIBUTED, DEVICE, 24, 8);
            let code = wholememory_get_rank_memory(&mut pointer, &mut size, &mut offset, 2, apart);
            bad(code, II, "rank is 2");
            assert_eq!((pointer as usize, size, offset), (7, 7, 7));
            let code = wholememory_get_rank_memory(&mut pointer, &mut size, &mut offset, 0, apart);
            bad(code, II, "DISTRIBUTED");
            assert_eq!((pointer as usize, size, offset), (0, 0, 0));
            bad(
                wholememory_get_global_reference(&mut gref, apart),
                II,
                "DISTRIBUTED",
            );
            assert_eq!((gref.pointer as usize, gref.world_size, gref.stride), (0, 2, 0));
            let chunks = malloc(comm, CHUNKED, DEVICE, 24, 8);
            good(wholememory_get_rank_memory(
                &mut pointer,
                &mut size,
                &mut offset,
                1,
                chunks,
            ));
            assert!(!pointer.is_null());
            assert_eq!((size, offset), (8, 16));
            good(wholememory_get_global_reference(&mut gref, chunks));
            assert_eq!((gref.world_size, gref.stride, gref.same_chunk), (2, 16, true));
            let (mut sizes, mut offsets) = ([0; 2], [0; 3]);
            good(wholememory_get_rank_partition_sizes(sizes.as_mut_ptr(), chunks));
            good(wholememory_get_rank_partition_offsets(
                offsets.as_mut_ptr(),
                chunks,
            ));
            assert_eq!((sizes, offsets), ([16, 8], [0, 16, 24]));
            assert_eq!(wholememory_get_total_size(chunks), 24);
            assert_eq!(wholememory_get_data_granularity(chunks), 8);
            assert_eq!(wholememory_get_memory_type(chunks) as u32, CHUNKED);
            assert_eq!(wholememory_get_memory_location(chunks) as u32, DEVICE);
            assert_eq!(wholememory_get_distributed_backend(chunks) as u32, 1);
        }
    });
}
