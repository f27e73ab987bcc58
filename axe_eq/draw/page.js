(()=>{const out=document.getElementById('selected'),rest=out.textContent;let lit=[],held='';
function pick(keys,cell){lit.forEach(c=>c.classList.remove('on'));lit=[];const told=new Set();
if(cell&&cell.dataset.t)told.add(cell.dataset.t);
if(keys)keys.split(' ').forEach(k=>document.querySelectorAll('[data-x~="'+k+'"]').forEach(c=>{
c.classList.add('on');lit.push(c);told.add(c.dataset.t)}));
out.textContent=told.size?[...told].slice(0,6).join('\n'):rest}
const of=e=>e.target.closest&&e.target.closest('[data-t]');
document.addEventListener('pointerover',e=>{const c=of(e);pick(c?c.dataset.x||'':held,c)});
document.addEventListener('click',e=>{const c=of(e),x=c&&c.dataset.x;if(x){held=x===held?'':x;
history.replaceState(null,'',held?'#'+held.replaceAll(' ','+'):'#');pick(held,c)}});
held=decodeURIComponent(location.hash.slice(1)).replaceAll('+',' ');
if(!/^[0-9 ]+$/.test(held))held='';pick(held)})();
