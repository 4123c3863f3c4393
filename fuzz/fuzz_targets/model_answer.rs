#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    lobster_fuzz::model_answer(data);
});
