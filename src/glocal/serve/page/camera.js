// A photo from the camera of this device.

import { notice } from "./notices.js";

const WANTED = { video: { facingMode: "environment", width: { ideal: 1280 }, height: { ideal: 960 } }, audio: false };
const WORDS = {
  NotAllowedError: "The camera may not be used: allow it in the browser's settings for this page.",
  NotFoundError: "No camera was found on this device.",
  NotReadableError: "The camera is in use by another program.",
};

/** take(file) gets every photo. */
export function setUpCamera(take) {
  const open = document.getElementById("camera-open");
  const panel = document.getElementById("camera");
  const video = panel.querySelector("video");
  const shutter = document.getElementById("camera-take");
  let stream = null;
  let count = 0;

  if (!navigator.mediaDevices?.getUserMedia) {
    open.hidden = true; // browsers give the camera only to pages from this machine or over https
    return { close: () => undefined };
  }

  const close = () => {
    stream?.getTracks().forEach((track) => track.stop());
    stream = null;
    video.srcObject = null;
    panel.hidden = true;
    open.hidden = false;
  };

  open.addEventListener("click", async () => {
    try {
      stream = await navigator.mediaDevices.getUserMedia(WANTED);
    } catch (error) {
      notice(WORDS[error.name] ?? `The camera does not work: ${error.message}.`, { kind: "error" });
      return;
    }
    video.srcObject = stream;
    panel.hidden = false;
    open.hidden = true;
    shutter.focus();
  });

  shutter.addEventListener("click", () => {
    if (!video.videoWidth) return;
    const canvas = document.createElement("canvas");
    canvas.width = video.videoWidth;
    canvas.height = video.videoHeight;
    canvas.getContext("2d").drawImage(video, 0, 0);
    canvas.toBlob(
      (blob) => {
        count += 1;
        take(new File([blob], `camera-${count}.jpg`, { type: "image/jpeg" }));
      },
      "image/jpeg",
      0.92,
    );
  });

  document.getElementById("camera-close").addEventListener("click", () => {
    close();
    open.focus();
  });
  return { close };
}
